"""Noise on an update, relative to its norm, and the defenses that it makes.

After APRIL (Lu et al., CVPR 2022, section 4.2, Fig. 6). Difference from the paper: it gives a
variance "relative to gradient norm" without saying which norm; here the noise's root-mean-square
norm is `scale` times the norm of the whole update.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from benchmark.contract import Defense, Update, Victim

# Kept, since new threads cost more than they save; one core each, so that they do not compete.
_THREADS = ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,))
Draw = Callable[[torch.Size, torch.Generator], Tensor]


@dataclass(frozen=True)
class NoiseDefense(Defense):
    """Independent noise of one standard deviation on every parameter, of a submission's law."""

    draw: ClassVar[Any]
    """Draws of variance 1 in a shape: `gaussian` or `laplacian`, a static method."""

    scale: float = 0.01
    """Noise norm over gradient norm."""

    def protect_update(self, update: Update, model: Victim, generator: torch.Generator) -> Update:
        """Return the update plus the noise."""
        return add_noise(update, self.scale, type(self).draw, generator)


def add_noise(update: Update, scale: float, draw: Draw, generator: torch.Generator) -> Update:
    """Return an update plus independent noise, one standard deviation for all parameters.

    Every tensor has its own stream, so the draws do not depend on the number of threads.

    Args:
        update: float32 tensors.
        scale: root-mean-square norm of the noise over the norm of the update.
        draw: `gaussian` or `laplacian`: draws of variance 1 in a shape.
        generator: seeds the streams.
    """
    count = sum(tensor.numel() for tensor in update.values())
    std = scale * update.norm() / count**0.5
    seeds = torch.randint(2**62, (len(update),), generator=generator).tolist()

    def noised(tensor: Tensor, seed: int) -> Tensor:
        noise = draw(tensor.shape, torch.Generator().manual_seed(seed))
        noise = noise.to(tensor.device)
        return torch.add(tensor, noise, alpha=std, out=noise)  # in place: memory is what it costs

    return Update(dict(zip(update, _THREADS.map(noised, update.values(), seeds), strict=True)))


def gaussian(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw from the normal distribution of variance 1."""
    return torch.randn(shape, generator=generator)


def laplacian(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw from the Laplace distribution of variance 1, by its inverse distribution function."""
    uniform = torch.empty(shape).uniform_(-1, 1, generator=generator).clamp_(min=-1 + 2**-24)
    magnitude = uniform.abs().neg_().log1p_()  # never the logarithm of 0
    return magnitude.mul_(0.5**0.5).copysign_(uniform)
