"""Bag of words by Decepticons' algorithms 2 and 3 as printed (Fowl et al., ICLR 2023).

The cut-off is the paper's 1.5 standard deviations of all rows' log-norms, and nothing is cleared of
the decoder's part; `bag_of_words` is this benchmark's own. How a misprint is read, see
`benchmark.toolbox.text.greedy_bag`. Tokens stand in arbitrary places, so only a score that heeds no
places means anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from pydantic import PositiveFloat

from benchmark.api import Attack, Grant, Observation, Reconstruction
from benchmark.toolbox.text.bag import check_bag
from benchmark.toolbox.text.greedy_bag import greedy_bag


@dataclass(frozen=True)
class BagOfWordsPublished(Attack):
    """Counts words greedily by gradients of the decoder's bias, or norms of the embedding's."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.LENGTH})
    cutoff: PositiveFloat = 1.5
    """Standard deviations of the rows' log-norms above their mean; the paper's."""

    def applies(self, seen: Observation) -> None:
        check_bag(seen.update, seen.model)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        shape = (seen.batch_size, seen.length)
        found = greedy_bag(seen.update, seen.model, shape[0] * shape[1], cutoff=self.cutoff)
        tokens = found.view(shape) if len(found) else torch.full(shape, -1)
        return Reconstruction(tokens=tokens)
