"""Laplacian noise on the update (APRIL, Lu et al., CVPR 2022, section 4.2, Fig. 6).

Difference from the paper: it gives a variance "relative to gradient norm" without saying which
norm; here the noise's root-mean-square norm is `scale` times the norm of the whole update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmark.api import Defense, Update


@dataclass(frozen=True)
class LaplacianNoise(Defense):
    """One diversity for all parameters, of standard deviation `scale * |update| / sqrt(n)`."""

    scale: float = 0.01
    """Noise norm over gradient norm."""

    def protect_update(
        self, update: Update, model: nn.Module, generator: torch.Generator
    ) -> Update:
        count = sum(tensor.numel() for tensor in update.values())
        diversity = self.scale * update.norm() / (2 * count) ** 0.5  # std is sqrt(2) diversities
        return Update(
            {
                name: tensor + diversity * _laplace(tensor.shape, generator).to(tensor)
                for name, tensor in update.items()
            }
        )


def _laplace(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Draw from the Laplace distribution of diversity 1 by its inverse distribution function."""
    uniform = torch.rand(shape, generator=generator).sub_(0.5)  # [-0.5, 0.5)
    tail = uniform.abs().mul_(-2).clamp_(min=-1 + 2**-24).log1p_()  # never log 0
    return tail.neg_().mul_(uniform.sign_())
