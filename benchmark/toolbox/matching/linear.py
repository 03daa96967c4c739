"""A frozen linear layer, differentiable twice by what it reads."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from benchmark.toolbox.matching.sparse_rows import gather_rows, nonzero_rows, scatter_rows


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return what a linear layer writes, (..., out); no gradient flows to its parameters.

    Args:
        x: (..., in).
        weight: (out, in).
        bias: (out,).
    """
    written: Tensor = _Linear.apply(x, weight, bias)
    return written


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(weight)
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        back: Tensor = _LinearBackward.apply(gradient, *ctx.saved_tensors)
        return back, None, None


class _LinearBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, weight: Tensor) -> Tensor:  # noqa: ANN401
        alive = nonzero_rows(gradient)
        ctx.save_for_backward(weight, alive)
        return scatter_rows(alive, gather_rows(alive, gradient) @ weight, gradient)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401
        weight, alive = ctx.saved_tensors
        return scatter_rows(alive, gather_rows(alive, by) @ weight.mT, by), None
