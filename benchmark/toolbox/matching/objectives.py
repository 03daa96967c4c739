"""What a search minimises: distances between dummy and observed gradients, one number a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from benchmark.toolbox.matching.ghost import Products, Target
from benchmark.toolbox.matching.gradients import Trace

Objective = Callable[[Trace, Target], Tensor]
"""Dummy and observed gradients -> (trials,) float64, least where they agree."""

Weights = Mapping[str, float]
"""A factor by parameter name; 1 where a name is absent."""

_SMALLEST = 1e-30  # a norm below this is zero: no root of a rounding error is differentiated


@dataclass(frozen=True)
class SquaredDistance:
    """Sum of |G' - G|^2 over the parameters, each with its weight (DLG, Zhu et al., 2019)."""

    weights: Weights | None = None

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the distance of each trial, (trials,) float64."""
        factors, found = _weigh(trace, target, self.weights)
        return (factors * found.squared_distance).sum(0)


@dataclass(frozen=True)
class Distance:
    """Sum of |G' - G| over the parameters, each norm by itself (GradViT, CVPR 2022, eq. 3)."""

    weights: Weights | None = None

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the distance of each trial, (trials,) float64."""
        factors, found = _weigh(trace, target, self.weights)
        return (factors * _root(found.squared_distance, found.seen)).sum(0)


@dataclass(frozen=True)
class CosineDistance:
    """One minus the cosine of G' and G (Inverting Gradients, Geiping et al., 2020, eq. 4).

    Attributes:
        over: `all` parameters as one vector, or each one's own cosine, averaged.
        names: of the parameters; all that are matched by default.
    """

    over: Literal["all", "each"] = "all"
    names: frozenset[str] | None = None

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the distance of each trial, (trials,) float64, in [0, 2]."""
        chosen = [n for n in target.names if self.names is None or n in self.names]
        _, found = target.compare(trace, chosen)
        if self.over == "each":
            return _off(found).mean(0)
        return _off(Products(found.dummy.sum(0), found.inner.sum(0), found.seen.sum(0)))


@dataclass(frozen=True)
class AbsoluteDistance:
    """Sum of |G' - G| over all entries, each parameter with its weight (TAG, Deng et al., 2021)."""

    weights: Weights | None = None

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the distance of each trial, (trials,) float64."""
        factors = _factors(target.names, self.weights)
        found = [factor * target.absolute(trace, name) for name, factor in factors.items()]
        return torch.stack(found).sum(0)


@dataclass(frozen=True)
class Sum:
    """A weighted sum of objectives."""

    parts: tuple[tuple[float, Objective], ...]

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the sum of each trial, (trials,) float64."""
        return torch.stack([weight * part(trace, target) for weight, part in self.parts]).sum(0)


def _factors(names: Iterable[str], weights: Weights | None) -> dict[str, float]:
    """Return the parameters that count, with their factors."""
    factors = {name: 1.0 if weights is None else weights.get(name, 1.0) for name in names}
    return {name: factor for name, factor in factors.items() if factor}


def _weigh(
    trace: Trace, target: Target, weights: Weights | None
) -> tuple[Tensor | float, Products]:
    """Return factors (parameters, 1), and products (parameters, trials), of those that count."""
    if weights is None:
        return 1.0, target.compare(trace, target.names)[1]
    factors = _factors(target.names, weights)
    order, found = target.compare(trace, list(factors))
    return found.seen.new_tensor([factors[name] for name in order])[:, None], found


def _root(square: Tensor, scale: Tensor) -> Tensor:
    """Return a norm from a square that may have cancelled: float32 leaves 1e-7 of the scale."""
    return square.clamp_min(1e-7 * scale + _SMALLEST).sqrt()


def _off(products: Products) -> Tensor:
    norms = products.dummy.clamp_min(_SMALLEST).sqrt() * products.seen.clamp_min(_SMALLEST).sqrt()
    return 1 - products.inner / norms
