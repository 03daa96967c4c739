"""Observed gradients of low rank, decomposed once before a search."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from benchmark.toolbox.matching.products import LowRank

_ROUNDING = 1e-5
"""A residual below this share of a gradient's norm is float32 rounding: its rank is complete."""
_SKETCH = 32
"""Rank tried first; doubled until it is enough."""


def decompose_all(gradients: Sequence[Tensor]) -> LowRank | None:
    """Decompose one parameter's observed gradients; None where one is not of low rank."""
    pairs = []
    for gradient in gradients:
        pair = decompose(gradient)
        if pair is None:
            return None
        pairs.append(pair)
    rank = max(left.shape[1] for left, _ in pairs)
    left, right = (  # trials of lower rank are filled up with zeros
        torch.stack([functional.pad(one, (0, rank - one.shape[1])) for one in side])
        for side in zip(*pairs, strict=True)
    )
    return LowRank(left, right)


def decompose(gradient: Tensor) -> tuple[Tensor, Tensor] | None:
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
            # the rows once more, from the columns: a sketch just as large as the rank is badly
            # conditioned, and misses more of them than rounding does
            columns = torch.linalg.qr(left)[0]
            right = gradient.mT @ columns
            values, vectors = torch.linalg.eigh((right.mT @ right).double())
            there = values > (4 * torch.finfo(gradient.dtype).eps) ** 2 * values[-1]
            turn = vectors[:, there].to(gradient)
            return columns @ turn, right @ turn
        size *= 2
    return None
