"""Bag of words: which tokens a batch held and how often, in no order (algorithms 2 and 3).

Source: Decepticons (Fowl et al., ICLR 2023), section 3.1 and appendix C. Differences: see
`benchmark.toolbox.text.bag`, which clears a tied table of the decoder's part first. The tokens
stand in arbitrary places, so only a score that heeds no places means anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmark.api import Attack, Grant, Observation, Reconstruction
from benchmark.toolbox.text.bag import bag, check_bag


@dataclass(frozen=True)
class BagOfWords(Attack):
    """Counts words by the gradients of the decoder and of the embedding."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.LENGTH})
    cut: float = 5.0
    """Standard deviations of the absent rows' log-norms by which a word stands out; the paper
    takes 1.5 of all rows', the decoder's part not cleared."""

    def applies(self, seen: Observation) -> None:
        check_bag(seen.update, seen.model)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        batch, length = seen.batch_size, seen.length
        found = bag(seen.update, seen.model, batch * length, sequences=batch, cut=self.cut)
        return Reconstruction(tokens=found.view(batch, length))
