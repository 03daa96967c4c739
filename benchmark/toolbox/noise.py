"""Noise on an update, relative to its norm, and the defenses that it makes.

After APRIL (Lu et al., CVPR 2022, section 4.2, Fig. 6). Difference from the paper: it gives a
variance "relative to gradient norm" without saying which norm; here the noise's root-mean-square
norm is `scale` times the norm of the whole update.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from benchmark.contract import Defense, Update, Victim

# Kept, since new threads cost more than they save; one core each, so that they do not compete.
_THREADS = ThreadPoolExecutor(
    torch.get_num_threads(), initializer=torch.set_num_threads, initargs=(1,)
)
Draw = Callable[[torch.Size, np.random.Generator], Tensor]


@dataclass(frozen=True)
class NoiseDefense(Defense):
    """Independent noise of one standard deviation on every parameter, of a submission's law."""

    draw: ClassVar[Any]
    """Draws of variance 1 in a shape: `gaussian` or `laplacian`, a static method."""

    scale: NonNegativeFloat = 0.01
    """Noise norm over gradient norm."""

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        """Return the update plus the noise."""
        count = sum(tensor.numel() for tensor in update.values())
        std = self.scale * update.norm() / count**0.5
        return add_noise(update, std, type(self).draw, draws)


def add_noise(update: Update, std: float, draw: Draw, draws: np.random.Generator) -> Update:
    """Return an update plus independent noise, one standard deviation for all parameters.

    Every tensor has its own stream, so the draws do not depend on the number of threads.

    Args:
        update: float32 tensors.
        std: of the noise.
        draw: `gaussian` or `laplacian`: draws of variance 1 in a shape.
        draws: keys the streams.
    """
    keys = draws.integers(2**64, size=(len(update), 2), dtype=np.uint64)

    def noised(tensor: Tensor, key: np.ndarray) -> Tensor:
        noise = draw(tensor.shape, np.random.Generator(np.random.Philox(key=key)))
        noise = noise.to(tensor.device)
        return torch.add(tensor, noise, alpha=std, out=noise)  # in place: memory is what it costs

    return Update(dict(zip(update, _THREADS.map(noised, update.values(), keys), strict=True)))


def gaussian(shape: torch.Size, draws: np.random.Generator) -> Tensor:
    """Draw from the normal distribution of variance 1, float32."""
    return torch.from_numpy(draws.standard_normal(shape, dtype=np.float32))


def laplacian(shape: torch.Size, draws: np.random.Generator) -> Tensor:
    """Draw from the Laplace distribution of variance 1, float32: two exponentials' difference."""
    one, other = (draws.standard_exponential(shape, dtype=np.float32) for _ in range(2))
    one -= other
    one *= 0.5**0.5
    return torch.from_numpy(one)
