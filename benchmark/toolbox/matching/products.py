"""The norm of a dummy gradient and its inner product with the observed one, and their derivatives.

Written out, because autograd would take three products of every Gram matrix where two will do, and
some thirty operations a parameter where a handful will.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from benchmark.toolbox.matching.sparse_rows import nonzero_rows

Seen = Tensor | Sequence[Tensor]
"""Observed gradients, (trials, out, in), or one a trial: a stack of large ones would be a copy."""


@dataclass(frozen=True)
class LowRank:
    """Observed gradients as `left @ right.mT`: (trials, out, rank), (trials, in, rank)."""

    left: Tensor
    right: Tensor


def total(terms: Tensor) -> Tensor:
    """Return the sum of each trial, (trials,) float64."""
    return terms.flatten(1).sum(1, dtype=torch.float64)


def compare_products(
    inputs: Tensor, outputs: Tensor, seen: Seen, low: LowRank | None
) -> tuple[Tensor, Tensor]:
    """Return |G'|^2 and <G, G'> of G' = outputs.mT @ inputs, each (trials,) float64.

    Args:
        inputs: (trials, tokens, in).
        outputs: (trials, tokens, out).
        seen: G; no gradient flows to it.
        low: the same, decomposed, where it is of low rank.
    """
    if (alive := nonzero_rows(outputs)) is not None:
        tokens = torch.unique(alive % outputs.shape[1])
        inputs, outputs = (side.index_select(1, tokens) for side in (inputs, outputs))
    (count, ins), out = inputs.shape[1:], outputs.shape[2]
    observed = out * ins if low is None else low.left.shape[2] * (out + ins)
    # multiplications a token, there and back
    if 2 * (count * (out + ins) + observed) > 3 * out * ins:
        found: tuple[Tensor, Tensor] = _Formed.apply(inputs, outputs, seen)
    elif low is None:
        found = _Whole.apply(inputs, outputs, seen)
    else:
        found = _LowRank.apply(inputs, outputs, low.left, low.right)
    return found


def compare_vectors(dummy: Sequence[Tensor], seen: Tensor, owners: Tensor) -> tuple[Tensor, Tensor]:
    """Return |v'|^2 and <v, v'> of every vector, each (vectors, trials) float64.

    Args:
        dummy: each (trials, its length).
        seen: all that was observed, side by side, (trials, lengths together).
        owners: which vector each of its entries belongs to, (lengths together,) int64.
    """
    pair: tuple[Tensor, Tensor] = _Vectors.apply(seen, owners, *dummy)
    return pair


def _factors(like: Tensor, *scales: Tensor) -> list[Tensor]:
    return [scale.to(like.dtype)[:, None, None] for scale in scales]


class _LowRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor, left: Tensor, right: Tensor) -> Any:  # noqa: ANN401
        grams, through = (x @ x.mT, g @ g.mT), (x @ right, g @ left)
        ctx.save_for_backward(x, g, left, right, *grams, *through)
        return total(grams[0] * grams[1]), total(through[0] * through[1])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_dummy: Tensor, by_inner: Tensor) -> Any:  # noqa: ANN401
        x, g, left, right, of_x, of_g, x_through, g_through = ctx.saved_tensors
        one, two = _factors(x, 2 * by_dummy, by_inner)
        by_x = ((two * g_through) @ right.mT).baddbmm_(one * of_g, x)
        by_g = ((two * x_through) @ left.mT).baddbmm_(one * of_x, g)
        return by_x, by_g, None, None


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor, seen: Seen) -> Any:  # noqa: ANN401
        grams, ctx.seen = (x @ x.mT, g @ g.mT), seen
        if isinstance(seen, Tensor):
            through = x @ seen.mT
        else:
            through = torch.stack([one @ whole.mT for one, whole in zip(x, seen, strict=True)])
        ctx.save_for_backward(x, g, *grams, through)
        return total(grams[0] * grams[1]), total(g * through)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_dummy: Tensor, by_inner: Tensor) -> Any:  # noqa: ANN401
        x, g, of_x, of_g, through = ctx.saved_tensors
        one, two = _factors(x, 2 * by_dummy, by_inner)
        if isinstance(ctx.seen, Tensor):
            back = (two * g) @ ctx.seen
        else:
            back = torch.stack([a @ whole for a, whole in zip(two * g, ctx.seen, strict=True)])
        return back.baddbmm_(one * of_g, x), (two * through).baddbmm_(one * of_x, g), None


class _Formed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, g: Tensor, seen: Seen) -> Any:  # noqa: ANN401
        formed, ctx.seen = g.mT @ x, seen
        ctx.save_for_backward(x, g, formed)
        if isinstance(seen, Tensor):
            inner = total(formed * seen)
        else:
            pairs = zip(formed, seen, strict=True)
            inner = torch.cat([total((one * whole)[None]) for one, whole in pairs])
        return total(formed.square()), inner

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_dummy: Tensor, by_inner: Tensor) -> Any:  # noqa: ANN401
        x, g, formed = ctx.saved_tensors
        one, two = _factors(x, 2 * by_dummy, by_inner)
        both = one * formed
        if isinstance(ctx.seen, Tensor):
            both.addcmul_(two, ctx.seen)
        else:
            for each, factor, whole in zip(both, two, ctx.seen, strict=True):
                each.addcmul_(factor, whole)
        return g @ both, x @ both.mT, None


class _Vectors(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, seen: Tensor, owners: Tensor, *dummy: Tensor) -> Any:  # noqa: ANN401
        ctx.sizes, together = [one.shape[1] for one in dummy], torch.cat(dummy, 1)
        ctx.save_for_backward(seen, owners, together)
        terms = (together * together, together * seen)
        return tuple(
            torch.stack([total(part) for part in term.split_with_sizes(ctx.sizes, 1)])
            for term in terms
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_dummy: Tensor, by_inner: Tensor) -> Any:  # noqa: ANN401
        seen, owners, together = ctx.saved_tensors
        one, two = (
            scale.to(seen.dtype).mT.index_select(1, owners) for scale in (2 * by_dummy, by_inner)
        )
        both = (one * together).addcmul_(two, seen)
        return None, None, *both.split_with_sizes(ctx.sizes, 1)
