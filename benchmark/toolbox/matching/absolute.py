"""The L1 distance of a weight gradient: the one loss that needs the gradient itself.

It is formed one trial at a time, and its sign is spent on both factors' derivatives at once, so
that no more than one trial's gradient of one layer stands in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def absolute_distance(inputs: Tensor, outputs: Tensor, seen: Sequence[Tensor]) -> Tensor:
    """Return the sum of |outputs.T @ inputs - seen|, (trials,) float64.

    Args:
        inputs: (trials, tokens, in).
        outputs: (trials, tokens, out).
        seen: one (out, in) a trial; no gradient flows to it.
    """
    distance: Tensor = _AbsoluteDistance.apply(inputs, outputs, seen)
    return distance


class _AbsoluteDistance(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, outputs: Tensor, seen: Sequence[Tensor]) -> Tensor:  # noqa: ANN401
        by_inputs, by_outputs = torch.empty_like(inputs), torch.empty_like(outputs)
        distances = inputs.new_empty(len(inputs), dtype=torch.float64)
        for i, (x, g, observed) in enumerate(zip(inputs, outputs, seen, strict=True)):
            difference = torch.addmm(observed, g.mT, x, beta=-1)  # (out, in)
            sign = difference.sign()
            distances[i] = torch.dot(sign.flatten(), difference.flatten())  # one pass, no abs()
            torch.mm(g, sign, out=by_inputs[i])
            torch.mm(x, sign.mT, out=by_outputs[i])
        ctx.save_for_backward(by_inputs, by_outputs)
        return distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        by_inputs, by_outputs = ctx.saved_tensors
        scale = scale.to(by_inputs.dtype)[:, None, None]
        return scale * by_inputs, scale * by_outputs, None
