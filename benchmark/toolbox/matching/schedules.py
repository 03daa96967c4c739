"""Schedules: progress in [0, 1) of a reconstruction -> factor on its learning rate."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

Schedule = Callable[[float], float]
"""Progress, the share of the steps already taken, in [0, 1) -> factor on the learning rate."""


@dataclass(frozen=True)
class Constant:
    """The factor is 1 throughout."""

    def __call__(self, progress: float) -> float:
        """Return the factor at a progress in [0, 1)."""
        return 1.0


@dataclass(frozen=True)
class Steps:
    """The factor is multiplied by `factor` at each progress in `at`.

    The defaults are those of Inverting Gradients (Geiping et al., 2020, public code).
    """

    at: tuple[float, ...] = (3 / 8, 5 / 8, 7 / 8)
    factor: float = 0.1

    def __call__(self, progress: float) -> float:
        """Return the factor at a progress in [0, 1)."""
        return self.factor ** sum(progress >= place for place in self.at)


@dataclass(frozen=True)
class After:
    """The factor is 0 before the progress `at`, and 1 from there on (GradViT, eq. 6)."""

    at: float

    def __call__(self, progress: float) -> float:
        """Return the factor at a progress in [0, 1)."""
        return float(progress >= self.at)


@dataclass(frozen=True)
class CosineDecay:
    """The factor falls from 1 to `to` along half a cosine (Loshchilov and Hutter, 2017)."""

    to: float = 0.0

    def __call__(self, progress: float) -> float:
        """Return the factor at a progress in [0, 1)."""
        return self.to + (1 - self.to) * (1 + math.cos(math.pi * progress)) / 2


@dataclass(frozen=True)
class Warmup:
    """The factor rises from 0 to 1 along a line, then another schedule runs over the rest.

    Attributes:
        share: of the progress that the rise takes, in (0, 1).
        then: sees the rest as progress from 0 to 1.
    """

    share: float
    then: Schedule = Constant()

    def __post_init__(self) -> None:
        if not 0 < self.share < 1:
            raise ValueError(f"Warmup: share is {self.share}; it must lie between 0 and 1")

    def __call__(self, progress: float) -> float:
        """Return the factor at a progress in [0, 1)."""
        if progress < self.share:
            return progress / self.share
        return self.then((progress - self.share) / (1 - self.share))
