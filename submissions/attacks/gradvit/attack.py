"""GradViT (Hatamizadeh et al., CVPR 2022).

Distances layer by layer (eq. 3), BatchNorm statistics of an independent network (eq. 4) from the
middle on, when the gradient's weight halves (eqs. 5 and 6), the patch prior (eq. 8), registration
of the restarts (eqs. 9 and 10), L2 and total variation (eq. 11), Adam with cosine decay; the
paper's weights. Differences: the network is the protocol's public one, the paper's a ResNet-50 of
MoCo V2; labels are counted, which is right more often than the paper's rule; registration is by
correlation, not RANSAC-Flow; the number of restarts is not printed, here 2; fewer steps by default
(the paper: 120,000).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from benchmark.api import Grant, ImageVictim, NotApplicable, Observation
from benchmark.toolbox.labels import infer_labels, minimum_rule
from benchmark.toolbox.matching import (
    Adam,
    After,
    CosineDecay,
    Distance,
    Registration,
    Search,
    SearchAttack,
    Steps,
    Sum,
    Term,
)
from benchmark.toolbox.priors import (
    BatchNormStatistics,
    EuclideanNorm,
    PatchBoundary,
    TotalVariation,
)


@dataclass(frozen=True)
class GradViT(SearchAttack):
    """Distances by layer, then an image prior, patch borders and registration."""

    steps: PositiveInt = 2000
    rate: PositiveFloat = 0.1
    restarts: PositiveInt = 2
    gradient: NonNegativeFloat = 4e-3
    """alpha_grad."""
    batch_norm: NonNegativeFloat = 0.2
    """alpha_image; at 0 no public network is needed."""
    patch: NonNegativeFloat = 1e-4
    """alpha_1."""
    registration: NonNegativeFloat = 1e-2
    """alpha_2."""
    prior: NonNegativeFloat = 1e-4
    """alpha_3, of L2 and of total variation."""
    every: PositiveInt = 100
    """Steps between two registrations."""
    scheduled: bool = True
    """Whether the image prior waits for half of the steps, and the gradient's weight then halves
    (eqs. 5 and 6); without it both stand from the start (Table 2's third row)."""
    counted: bool = True
    """Whether labels are counted; else they are the paper's, the rows of the head's gradient with
    the least entries, which takes them to be distinct and errs where classes are few."""

    @property
    def needs(self) -> frozenset[Grant]:
        wanted = {Grant.BATCH_SIZE}
        return frozenset(wanted | {Grant.PUBLIC_NETWORK} if self.batch_norm else wanted)

    def plan(self, seen: Observation) -> Search:
        victim = ImageVictim.of(seen.model)
        terms = [
            Term(self.prior, EuclideanNorm()),
            Term(self.prior, TotalVariation("euclidean")),
        ]
        with suppress(NotApplicable):  # a network without patches has no borders
            terms.insert(0, Term(self.patch, PatchBoundary(victim.anatomy.patch)))
        if self.batch_norm:
            prior = BatchNormStatistics(seen.public_network, victim.mean, victim.std)
            terms.append(Term(self.batch_norm, prior, After(0.5 if self.scheduled else 0.0)))
        return Search(
            Sum(((self.gradient, Distance()),)),
            self.steps,
            Adam(),
            self.rate,
            CosineDecay(),
            objective_schedule=Steps(at=(0.5,) if self.scheduled else (), factor=0.5),
            terms=tuple(terms),
            restarts=self.restarts,
            registration=Registration(self.registration, every=self.every),
        )

    def labels(self, seen: Observation) -> Tensor:
        if self.counted:
            return infer_labels(seen)
        return minimum_rule(seen.update, ImageVictim.of(seen.model).head, seen.batch_size)
