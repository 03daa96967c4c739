"""What a search is: the objective, the priors, the optimiser, and how long and how often."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from benchmark.toolbox.matching.objectives import Objective
from benchmark.toolbox.matching.optimisers import Adam, Optimiser
from benchmark.toolbox.matching.schedules import Constant, Schedule

_THROUGHOUT = Constant()
_ADAM = Adam()

Prior = Callable[[Tensor], Tensor]
"""Normalised images (trials, batch, channel, height, width) -> (trials,)."""

LabelledPrior = Callable[[Tensor, Tensor], Tensor]
"""The same images, and their labels (trials, batch) int64 -> (trials,)."""


@dataclass(frozen=True)
class Term:
    """A prior and its weight.

    Attributes:
        weight: of the prior.
        prior: the prior.
        schedule: factor on the weight over the progress of a search.
    """

    weight: float
    prior: Prior
    schedule: Schedule = _THROUGHOUT


@dataclass(frozen=True)
class LabelledTerm:
    """A prior of images whose labels are known, and its weight."""

    weight: float
    prior: LabelledPrior


@dataclass(frozen=True)
class Registration:
    """Restarts of a trial are drawn to their consensus (GradInversion, GradViT eqs. 9 and 10).

    Attributes:
        weight: of the squared distance to the consensus.
        every: steps between two registrations.
        after: progress before which restarts go their own ways.
        align: how an image may move; see `priors.register`.
        squared: whether the distance is squared.
    """

    weight: float
    every: int = 100
    after: float = 0.5
    align: Literal["shift", "flow"] = "shift"
    squared: bool = False


@dataclass(frozen=True)
class Search:
    """A search for the images or the text whose gradient is the one observed.

    Its last iterate answers, not the one of least loss: near the end float32 leaves the loss noise
    that is larger than what the images still gain.

    Attributes:
        objective: what is matched; None reads no gradient at all.
        steps: of each restart; fewer where the budget's gradient evaluations do not reach.
        optimiser: of the images or the embeddings, and of the labels where they are searched too.
        rate: learning rate, on normalised images, or embeddings in units of their table's spread.
        schedule: factor on the learning rate.
        objective_schedule: factor on the objective.
        terms: priors added to it.
        labelled: a prior that reads labels too; they must be given.
        restarts: searches a trial, each from its own start; the one with the least loss answers.
        start: standard deviation of the normal draw that a search starts from.
        noise: standard deviation of the noise added at each step, per unit of learning rate.
        clamp: whether pixels are kept in [0, 1] at each step.
        labels: `given` to the search, or `searched` with the images (DLG, Zhu et al., 2019). Of
            text it is the words that are given, or searched among the vocabulary; which of them
            stands where is searched in either case.
        registration: of the restarts.
    """

    objective: Objective | None
    steps: int
    optimiser: Optimiser = _ADAM
    rate: float = 0.1
    schedule: Schedule = _THROUGHOUT
    objective_schedule: Schedule = _THROUGHOUT
    terms: tuple[Term, ...] = ()
    restarts: int = 1
    start: float = 1.0
    noise: float = 0.0
    clamp: bool = False
    labels: Literal["given", "searched"] = "given"
    registration: Registration | None = None
    labelled: LabelledTerm | None = None

    @property
    def reads_labels(self) -> bool:
        """Whether it must be told the labels."""
        return self.labels == "given" and not (self.objective is None and self.labelled is None)
