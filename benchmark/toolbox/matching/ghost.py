"""Norms, inner products and distances of gradients from their factors, none of them formed.

For a matrix with inputs x and output gradients g over a trial's tokens, and an observed G = U V^T:

- |G'|^2 = sum over tokens s, t of <x_s, x_t> <g_s, g_t>: a Gram product, tokens by tokens;
- <G, G'> = sum over tokens of <U^T g_t, V^T x_t>, or of <g_t, G x_t> where G has full rank.

The terms of a distance cancel near convergence: they are added in float64, and a distance may
still end a rounding below zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from benchmark.contract import Update
from benchmark.toolbox.matching.absolute import absolute_distance
from benchmark.toolbox.matching.trace import Gradient, Lookup, Product, Trace

_ROUNDING = 1e-5
"""A residual below this share of a gradient's norm is float32 rounding: its rank is complete."""
_SKETCH = 32
"""Rank tried first; doubled until it is enough."""


@dataclass(frozen=True)
class Products:
    """What a loss needs of one parameter, each (trials,) float64.

    Attributes:
        dummy: |G'|^2.
        inner: <G, G'>.
        seen: |G|^2.
    """

    dummy: Tensor
    inner: Tensor
    seen: Tensor

    @property
    def squared_distance(self) -> Tensor:
        """|G' - G|^2."""
        return self.dummy - 2 * self.inner + self.seen


@dataclass(frozen=True)
class _LowRank:
    """Observed gradients as `left @ right.mT`: (trials, out, rank), (trials, in, rank)."""

    left: Tensor
    right: Tensor


class Target:
    """The observed updates of a stack of trials, ready to be matched.

    Args:
        updates: one a trial; kept, not copied.
        names: the parameters to match.
    """

    def __init__(self, updates: Sequence[Update], names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._updates = list(updates)
        self._seen: dict[str, Tensor] = {}
        self._vectors: dict[str, Tensor] = {}
        self._low: dict[str, _LowRank] = {}
        for name in self.names:
            gradients = [update[name] for update in self._updates]
            self._seen[name] = torch.cat([_sum(g[None].square()) for g in gradients])
            if gradients[0].ndim < 2 or gradients[0].shape[0] == 1:
                self._vectors[name] = torch.stack(gradients).flatten(1)
            elif (low := _low_rank([g.flatten(1) for g in gradients])) is not None:
                self._low[name] = low

    def __len__(self) -> int:
        return len(self._updates)

    def keep(self, rows: Tensor) -> Target:
        """Return the target of some of the trials, in that order."""
        if torch.equal(rows, torch.arange(len(self), device=rows.device)):
            return self
        kept = object.__new__(Target)
        kept.names, kept._updates = self.names, [self._updates[i] for i in rows.tolist()]
        kept._seen = {name: seen[rows] for name, seen in self._seen.items()}
        kept._vectors = {name: vector[rows] for name, vector in self._vectors.items()}
        kept._low = {n: _LowRank(low.left[rows], low.right[rows]) for n, low in self._low.items()}
        return kept

    def finite(self) -> Tensor:
        """Tell which trials' updates hold neither NaN nor infinity, (trials,) bool."""
        return torch.stack([seen.isfinite() for seen in self._seen.values()]).all(0)

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each decomposed parameter; the others are matched as they came."""
        return {name: low.left.shape[2] for name, low in self._low.items()}

    def products(self, trace: Trace, name: str) -> Products:
        """Return the norms and the inner product of one parameter's gradients."""
        gradient = trace.gradients[name]
        return Products(squared_norm(gradient), self._inner(gradient, name), self._seen[name])

    def absolute(self, trace: Trace, name: str) -> Tensor:
        """Return the sum of |G' - G| over one parameter's entries, (trials,) float64."""
        gradient = trace.gradients[name]
        if isinstance(gradient, Product):
            seen = [update[name].flatten(1) for update in self._updates]
            return absolute_distance(gradient.inputs, gradient.outputs, seen)
        formed = gradient if isinstance(gradient, Tensor) else gradient.formed().flatten(1)
        return _sum((formed - self._whole(name)).abs())

    def _whole(self, name: str) -> Tensor:
        if name in self._vectors:
            return self._vectors[name]
        return torch.stack([update[name].flatten() for update in self._updates])

    def _inner(self, gradient: Gradient, name: str) -> Tensor:
        if isinstance(gradient, Tensor):
            return _sum(gradient * self._whole(name))
        if isinstance(gradient, Lookup):
            seen = torch.stack(
                [update[name][ids] for update, ids in zip(self._updates, gradient.ids, strict=True)]
            )
            return _sum(gradient.outputs * seen)
        if name in self._low:
            low = self._low[name]
            return _sum((gradient.outputs @ low.left) * (gradient.inputs @ low.right))
        through = [  # trial by trial: a stack of full-rank gradients would be a copy of the updates
            inputs @ update[name].flatten(1).mT
            for inputs, update in zip(gradient.inputs, self._updates, strict=True)
        ]
        return _sum(gradient.outputs * torch.stack(through))


def squared_norm(gradient: Gradient) -> Tensor:
    """Return |G'|^2, (trials,) float64; a product is formed only where that is the smaller work."""
    if isinstance(gradient, Tensor):
        return _sum(gradient.square())
    if isinstance(gradient, Lookup):
        same = gradient.ids[:, :, None] == gradient.ids[:, None, :]
        return _sum(same * (gradient.outputs @ gradient.outputs.mT))
    tokens, ins = gradient.inputs.shape[1:]
    outs = gradient.outputs.shape[2]
    if tokens * (ins + outs) > ins * outs:
        return _sum(gradient.formed().square())
    return _sum((gradient.inputs @ gradient.inputs.mT) * (gradient.outputs @ gradient.outputs.mT))


def _low_rank(gradients: Sequence[Tensor]) -> _LowRank | None:
    """Decompose one parameter's observed gradients; None where one is not of low rank."""
    pairs = []
    for gradient in gradients:
        pair = _decomposed(gradient)
        if pair is None:
            return None
        pairs.append(pair)
    rank = max(left.shape[1] for left, _ in pairs)
    left, right = (  # trials of lower rank are filled up with zeros
        torch.stack([functional.pad(one, (0, rank - one.shape[1])) for one in side])
        for side in zip(*pairs, strict=True)
    )
    return _LowRank(left, right)


def _decomposed(gradient: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return (out, rank) and (in, rank) whose product is the gradient to rounding, or None.

    A sketch that is large enough finds the whole row space; what it misses says whether it was, and
    under noise none is. The spectrum then lowers the rank to what is there.
    """
    outs, ins = gradient.shape
    norm = torch.linalg.norm(gradient)
    draws = torch.Generator().manual_seed(0)
    size = _SKETCH
    while 2 * size < min(outs, ins):
        sketch = torch.randn(size, outs, generator=draws).to(gradient) @ gradient
        basis = torch.linalg.qr(sketch.mT)[0]  # (in, size)
        left = gradient @ basis  # (out, size)
        if bool(torch.linalg.norm(gradient - left @ basis.mT) <= _ROUNDING * norm):
            values, vectors = torch.linalg.eigh((left.mT @ left).double())
            there = values > torch.finfo(gradient.dtype).eps ** 2 * values[-1]
            turn = vectors[:, there].to(gradient)
            return left @ turn, basis @ turn
        size *= 2
    return None


def _sum(terms: Tensor) -> Tensor:
    return terms.flatten(1).sum(1, dtype=torch.float64)
