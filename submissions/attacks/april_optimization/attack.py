"""APRIL by optimisation (Lu et al., CVPR 2022, Algorithm 2, eq. 12).

Squared distance of all gradients, and the cosine of the position embedding's. Differences: the
paper does not print the cosine's weight, here 1; labels are granted or inferred by the rule that
fits the batch, which for a single image is the paper's sign rule. The paper attacks images; text
is searched as by `dlg`, where its positions are learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from benchmark.api import Grant, NotApplicable, Observation
from benchmark.toolbox.matching import (
    CosineDistance,
    Search,
    SearchAttack,
    SquaredDistance,
    Sum,
    select,
)


@dataclass(frozen=True)
class AprilOptimization(SearchAttack):
    """Squared distance, and the direction of the positions, by Adam."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})
    text: ClassVar = True

    steps: int = 1500
    """The paper's for CIFAR-10; 800 for MNIST and 5000 for ImageNet."""
    rate: float = 0.2
    """As of `dlg`, where it was chosen on public images."""
    cosine: float = 1.0
    """The paper's alpha, which it does not print."""

    words: Literal["given", "searched"] = "given"
    """Of text, as of `dlg`."""

    def applies(self, seen: Observation) -> None:
        if not select.of_positions(seen.model, seen.update):
            raise NotApplicable("the update holds no gradient of the positions")
        super().applies(seen)

    def plan(self, seen: Observation) -> Search:
        positions = CosineDistance(names=select.of_positions(seen.model, seen.update))
        objective = Sum(((1.0, SquaredDistance()), (self.cosine, positions)))
        labels = self.words if seen.model.track == "text" else "given"
        return Search(objective, self.steps, rate=self.rate, labels=labels)
