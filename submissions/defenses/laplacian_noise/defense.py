"""Laplacian noise on the update (APRIL, Lu et al., CVPR 2022, section 4.2, Fig. 6).

Difference from the paper: it gives a variance "relative to gradient norm" without saying which
norm; here the noise's root-mean-square norm is `scale` times the norm of the whole update.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from benchmark.api import Defense, Update, Victim
from benchmark.toolbox.noise import laplacian, with_noise


@dataclass(frozen=True)
class LaplacianNoise(Defense):
    """Independent noise of one standard deviation on every parameter."""

    scale: float = 0.01
    """Noise norm over gradient norm."""

    def protect_update(self, update: Update, model: Victim, generator: torch.Generator) -> Update:
        return with_noise(update, self.scale, laplacian, generator)
