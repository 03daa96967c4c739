"""Activations whose second derivative is one fused formula instead of autograd's many steps."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from benchmark.toolbox.matching.sparse_rows import gather_rows, nonzero_rows, scatter_rows


def gelu(x: Tensor) -> Tensor:
    """Return GELU (its exact form) of any shape; differentiable twice."""
    written: Tensor = _Gelu.apply(x)
    return written


class _Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ANN401
        ctx.save_for_backward(x)
        return functional.gelu(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        (x,) = ctx.saved_tensors
        back: Tensor = _GeluBackward.apply(gradient, x)
        return back


class _GeluBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, x: Tensor) -> Tensor:  # noqa: ANN401
        alive = nonzero_rows(gradient)
        gradients, rows = gather_rows(alive, gradient), gather_rows(alive, x)
        ctx.save_for_backward(gradients, rows, alive)
        return scatter_rows(alive, torch.ops.aten.gelu_backward(gradients, rows), x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        gradients, rows, alive = ctx.saved_tensors
        bys = gather_rows(alive, by)
        square = rows.square()
        density = square.mul(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
        second = square.neg_().add_(2).mul_(density)  # gelu'' = density(x) (2 - x^2)
        by_gradients = torch.ops.aten.gelu_backward(bys, rows)
        by_rows = second.mul_(gradients).mul_(bys)
        return scatter_rows(alive, by_gradients, by), scatter_rows(alive, by_rows, by)
