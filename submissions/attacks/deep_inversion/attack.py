"""DeepInversion (Yin et al., CVPR 2020), a control: what an image prior alone gives.

BatchNorm statistics of a public network and total variation, by Adam; the weights of the authors'
CIFAR-10 code. No gradient of the victim is computed and nothing of the update is read. Differences:
the inverted network is the protocol's public one; no class loss, since labels would be read off the
update.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from benchmark.api import Grant, ImageVictim, Observation
from benchmark.toolbox.matching import Search, SearchAttack, Term
from benchmark.toolbox.priors import BatchNormStatistics, TotalVariation


@dataclass(frozen=True)
class DeepInversion(SearchAttack):
    """BatchNorm statistics and total variation, by Adam; the update is not read."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.PUBLIC_NETWORK})

    steps: PositiveInt = 2000
    rate: PositiveFloat = 0.1
    batch_norm: NonNegativeFloat = 10.0
    total_variation: NonNegativeFloat = 1e-3

    def plan(self, seen: Observation) -> Search:
        victim = ImageVictim.of(seen.model)
        statistics = BatchNormStatistics(seen.public_network, victim.mean, victim.std)
        variation = TotalVariation("euclidean")
        terms = (Term(self.batch_norm, statistics), Term(self.total_variation, variation))
        return Search(None, self.steps, rate=self.rate, terms=terms)

    def labels(self, seen: Observation) -> Tensor | None:
        return None
