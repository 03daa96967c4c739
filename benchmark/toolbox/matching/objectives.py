"""What a search minimises: distances between dummy and observed gradients, one number a trial."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from benchmark.toolbox.matching.ghost import Products, Target
from benchmark.toolbox.matching.trace import Trace

Objective = Callable[[Trace, Target], Tensor]
"""Dummy and observed gradients -> (trials,) float64, least where they agree."""

Weights = Mapping[str, float]
"""A factor by parameter name; 1 where a name is absent."""

_T = TypeVar("_T")
_SMALLEST = 1e-30  # a norm below this is zero: no root of a rounding error is differentiated


@dataclass(frozen=True)
class SquaredDistance:
    """Sum of |G' - G|^2 over the parameters, each with its weight (DLG, Zhu et al., 2019)."""

    weights: Weights | None = None

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the distance of each trial, (trials,) float64."""
        found = _products(trace, target)
        return _total(
            factor * products.squared_distance for factor, products in _weighed(found, self.weights)
        )


@dataclass(frozen=True)
class Distance:
    """Sum of |G' - G| over the parameters, each norm by itself (GradViT, CVPR 2022, eq. 3)."""

    weights: Weights | None = None

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the distance of each trial, (trials,) float64."""
        found = _products(trace, target)
        return _total(
            factor * _root(products.squared_distance, products.seen)
            for factor, products in _weighed(found, self.weights)
        )


@dataclass(frozen=True)
class Cosine:
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
        found = [target.products(trace, name) for name in chosen]
        if self.over == "each":
            return _total(_off(products) for products in found) / len(found)
        dummy = _total(products.dummy for products in found)
        inner = _total(products.inner for products in found)
        seen = _total(products.seen for products in found)
        return _off(Products(dummy, inner, seen))


@dataclass(frozen=True)
class AbsoluteDistance:
    """Sum of |G' - G| over all entries, each parameter with its weight (TAG, Deng et al., 2021)."""

    weights: Weights | None = None

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the distance of each trial, (trials,) float64."""
        found = {name: target.absolute(trace, name) for name in target.names}
        return _total(factor * one for factor, one in _weighed(found, self.weights))


@dataclass(frozen=True)
class Sum:
    """A weighted sum of objectives."""

    parts: tuple[tuple[float, Objective], ...]

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the sum of each trial, (trials,) float64."""
        return _total(weight * part(trace, target) for weight, part in self.parts)


def _products(trace: Trace, target: Target) -> dict[str, Products]:
    return {name: target.products(trace, name) for name in target.names}


def _weighed(found: Mapping[str, _T], weights: Weights | None) -> Iterable[tuple[float, _T]]:
    for name, one in found.items():
        factor = 1.0 if weights is None else weights.get(name, 1.0)
        if factor:
            yield factor, one


def _total(terms: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(terms)).sum(0)


def _root(square: Tensor, scale: Tensor) -> Tensor:
    """Return a norm from a square that may have cancelled: float32 leaves 1e-7 of the scale."""
    return square.clamp_min(1e-7 * scale + _SMALLEST).sqrt()


def _off(products: Products) -> Tensor:
    norms = products.dummy.clamp_min(_SMALLEST).sqrt() * products.seen.clamp_min(_SMALLEST).sqrt()
    return 1 - products.inner / norms
