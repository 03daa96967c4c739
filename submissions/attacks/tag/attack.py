"""TAG: Gradient Attack on Transformer-based Language Models (Deng et al., Findings of EMNLP 2021).

Squared distance and weighted L1 distance of all gradients; the weight falls with the order of the
parameters. Differences: Adam at the rate at which APRIL (Lu et al., CVPR 2022) ran it on images;
the paper prints neither the weight nor its fall, here 0.1 times a line from 1 at the first
parameter to 0 after the last. Of images labels are granted or inferred; of text they are searched
with the embeddings, over the whole vocabulary, as in the paper: `toolbox.matching.text`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from benchmark.api import Grant, Observation
from benchmark.toolbox.matching import (
    AbsoluteDistance,
    Search,
    SearchAttack,
    SquaredDistance,
    Sum,
    select,
)


@dataclass(frozen=True)
class TAG(SearchAttack):
    """Squared and absolute distance of all gradients, by Adam."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})
    text: ClassVar = True

    steps: int = 1500
    rate: float = 0.1
    absolute: float = 0.1
    """Weight of the L1 distance at the first parameter."""
    words: Literal["given", "searched"] = "searched"
    """Of text: searched among the vocabulary, as in the paper, or those that the update tells."""

    def plan(self, seen: Observation) -> Search:
        absolute = AbsoluteDistance(select.by_order(seen.update))
        objective = Sum(((1.0, SquaredDistance()), (self.absolute, absolute)))
        labels = self.words if seen.model.track == "text" else "given"
        return Search(objective, self.steps, rate=self.rate, labels=labels)
