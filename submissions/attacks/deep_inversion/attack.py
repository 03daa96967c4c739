"""DeepInversion (Yin et al., CVPR 2020), a control: an image prior that knows the labels.

BatchNorm statistics of a public network, its loss of the classes, and total variation, by Adam;
the weights of the authors' code, whose ImageNet script weighs the first layer tenfold. No gradient
of the victim is computed; of the update labels alone are read, where they are not granted, and
nothing with class_loss=0.0. Differences: the inverted network is the protocol's public one, which
knows the classes by the same numbers or the loss says nothing of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from benchmark.api import Grant, ImageVictim, Observation
from benchmark.toolbox.matching import LabelledTerm, Search, SearchAttack, Term
from benchmark.toolbox.priors import BatchNormStatistics, ClassLoss, TotalVariation


@dataclass(frozen=True)
class DeepInversion(SearchAttack):
    """BatchNorm statistics, classes and total variation, by Adam."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.PUBLIC_NETWORK})

    steps: PositiveInt = 2000
    rate: PositiveFloat = 0.1
    batch_norm: NonNegativeFloat = 10.0
    first_layer: NonNegativeFloat = 10.0
    """Weight of the first layer's statistics over that of the others'."""
    class_loss: NonNegativeFloat = 1.0
    """Weight of the public network's cross-entropy with the labels; at 0 none are read."""
    total_variation: NonNegativeFloat = 1e-3

    def plan(self, seen: Observation) -> Search:
        victim, network = ImageVictim.of(seen.model), seen.public_network
        statistics = BatchNormStatistics(network, victim.mean, victim.std, self.first_layer)
        terms = (
            Term(self.batch_norm, statistics),
            Term(self.total_variation, TotalVariation("euclidean")),
        )
        classes = LabelledTerm(self.class_loss, ClassLoss(network, victim.mean, victim.std))
        return Search(
            None,
            self.steps,
            rate=self.rate,
            terms=terms,
            labelled=classes if self.class_loss else None,
        )
