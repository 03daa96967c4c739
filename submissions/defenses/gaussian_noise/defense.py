"""Gaussian noise on the update (APRIL, Lu et al., CVPR 2022, section 4.2, Fig. 6).

Difference from the paper: it gives a variance "relative to gradient norm" without saying which
norm; here the noise's expected norm is `scale` times the norm of the whole update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from benchmark.api import Defense, Update


@dataclass(frozen=True)
class GaussianNoise(Defense):
    """One standard deviation for all parameters: `scale * |update| / sqrt(parameters)`."""

    scale: float = 0.01
    """Noise norm over gradient norm."""

    def protect_update(
        self, update: Update, model: nn.Module, generator: torch.Generator
    ) -> Update:
        count = sum(tensor.numel() for tensor in update.values())
        std = self.scale * update.norm() / count**0.5
        return Update(
            {
                name: tensor + std * torch.randn(tensor.shape, generator=generator).to(tensor)
                for name, tensor in update.items()
            }
        )
