"""See through Gradients, GradInversion (Yin et al., CVPR 2021).

Distances layer by layer, total variation, L2, the BatchNorm statistics of an independent network
and the consensus of several restarts; labels of a batch by the rule of minima. Differences: the
network is the protocol's public one, not the victim, since a transformer has no BatchNorm
(GradViT's baseline does the same); registration is by phase correlation, not RANSAC-Flow; fewer
steps and restarts by default (the paper: 20,000 steps).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from benchmark.api import Grant, ImageVictim, Observation
from benchmark.toolbox.labels import minimum_rule
from benchmark.toolbox.matching import (
    Adam,
    CosineDecay,
    Distance,
    Registration,
    Search,
    SearchAttack,
    Sum,
    Term,
    Warmup,
)
from benchmark.toolbox.priors import BatchNormStatistics, EuclideanNorm, TotalVariation


@dataclass(frozen=True)
class GradInversion(SearchAttack):
    """Distances by layer, image priors and group consistency."""

    steps: PositiveInt = 2000
    rate: PositiveFloat = 0.1
    restarts: PositiveInt = 2
    gradient: NonNegativeFloat = 1e-3
    total_variation: NonNegativeFloat = 1e-4
    norm: NonNegativeFloat = 1e-6
    batch_norm: NonNegativeFloat = 0.1
    """Weight of the BatchNorm statistics; at 0 no public network is needed."""
    group: NonNegativeFloat = 0.01
    noise: NonNegativeFloat = 0.2
    """Standard deviation, per unit of learning rate."""
    warmup: Annotated[float, Field(ge=0, le=1)] = 0.0025
    """Share of the steps: the paper's 50 of 20,000."""
    every: PositiveInt = 100
    """Steps between two registrations."""
    after: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Progress at which registration begins."""

    @property
    def needs(self) -> frozenset[Grant]:
        wanted = {Grant.BATCH_SIZE}
        return frozenset(wanted | {Grant.PUBLIC_NETWORK} if self.batch_norm else wanted)

    def plan(self, seen: Observation) -> Search:
        victim = ImageVictim.of(seen.model)
        terms = [
            Term(self.total_variation, TotalVariation("euclidean")),
            Term(self.norm, EuclideanNorm()),
        ]
        if self.batch_norm:
            prior = BatchNormStatistics(seen.public_network, victim.mean, victim.std)
            terms.append(Term(self.batch_norm, prior))
        return Search(
            Sum(((self.gradient, Distance()),)),
            self.steps,
            Adam(),
            self.rate,
            Warmup(self.warmup, CosineDecay()),
            terms=tuple(terms),
            restarts=self.restarts,
            noise=self.noise,
            registration=Registration(self.group, every=self.every, after=self.after),
        )

    def labels(self, seen: Observation) -> Tensor:
        return minimum_rule(seen.update, ImageVictim.of(seen.model).head, seen.batch_size)
