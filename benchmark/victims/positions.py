"""Fixed sine-cosine positions in place of learned ones.

The encodings differ in rank, which decides what they hide. One dimension, its frequencies
up to half a cycle a patch, gives every patch an independent row; that of Vaswani et al. does so
only beyond float32's precision. The 2-D encoding of a grid (MAE, MoCo v3) is a function of the row
plus a function of the column: rank 2 * side - 1 at most, so the positions of most patches are
combinations of the others'.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

Encoding = Literal["sincos_1d", "sincos_2d", "vaswani", "zeros"]
_SPREAD = 100.0  # highest over lowest frequency; keeps rows independent where width >= 4 patches


def fix_positions(network: nn.Module, encoding: Encoding, name: str = "pos_embed") -> None:
    """Replace a network's learned positions by a fixed buffer; prefix tokens stand at zero."""
    module, _, last = name.rpartition(".")
    holder = network.get_submodule(module)
    learned = getattr(holder, last)
    assert isinstance(learned, Tensor)
    tokens, width = learned.shape[1:]
    side = math.isqrt(tokens)  # prefix tokens are fewer than a row of patches
    fixed = torch.zeros_like(learned.detach())
    fixed[0, tokens - side**2 :] = ENCODINGS[encoding](side, width)
    delattr(holder, last)
    holder.register_buffer(last, fixed)


def sincos_1d(side: int, width: int) -> Tensor:
    """Return (side * side, width): sines, then cosines, of the patch's index in reading order.

    The angular frequencies fall geometrically from pi a patch, so that rows are independent.
    """
    return _waves(side, width, math.pi, _SPREAD)


def vaswani(side: int, width: int) -> Tensor:
    """Return (side * side, width), as "Attention Is All You Need" has it (Vaswani et al., 2017).

    The angular frequencies fall from 1, over 10,000 in all: over so few positions the rows are
    dependent to float32's precision. Sines come before cosines, where the paper alternates them.
    """
    return _waves(side, width, 1.0, 10_000.0)


def _waves(side: int, width: int, highest: float, spread: float) -> Tensor:
    half = width // 2
    frequencies = highest * spread ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(side**2, dtype=torch.float64)[:, None] * frequencies
    waves = torch.cat([angles.sin(), angles.cos()], dim=1)
    return nn.functional.pad(waves, (0, width - 2 * half)).float()


def sincos_2d(side: int, width: int) -> Tensor:
    """Return (side * side, width), as timm builds it; the width is a multiple of 4."""
    from timm.layers.pos_embed_sincos import build_sincos2d_pos_embed

    grid: Tensor = build_sincos2d_pos_embed([side, side], dim=width)
    return grid


def zeros(side: int, width: int) -> Tensor:
    """Return (side * side, width): no position is told from another."""
    return torch.zeros(side**2, width)


ENCODINGS = {"sincos_1d": sincos_1d, "sincos_2d": sincos_2d, "vaswani": vaswani, "zeros": zeros}
