"""PRECODE (Scheliga et al., WACV 2022): a variational bottleneck that client and server share.

For images. What the head reads goes through two further layers: one tells a mean and a variance, a
point of that normal distribution is drawn, and the other maps it back. Every gradient thereby
depends on the draw, which is the client's secret and another in each step; the loss grows by the
divergence from the standard normal. The server knows the layers, and its own model reads the mean.
Where the paper leaves it open: the first layer tells the variance's logarithm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from pydantic import NonNegativeFloat, PositiveInt

from benchmark.api import Batch, Bottleneck, Defense, ImageVictim, Update, Victim
from benchmark.toolbox.noise import gaussian


@dataclass(frozen=True)
class Precode(Defense):
    """Adds the bottleneck to the victim, and draws in it."""

    width: PositiveInt = 256
    """Dimensions of the latent distribution; the paper's."""
    weight: NonNegativeFloat = 0.001
    """Of the divergence, in nats, in the loss; the paper's."""

    def harden(self, model: Victim, generator: torch.Generator) -> Victim:
        bottleneck = Bottleneck(width=self.width, weight=self.weight)
        return ImageVictim.of(model).with_bottleneck(bottleneck, generator)

    def compute_update(
        self,
        batch: Batch,
        model: Victim,
        gradient: Callable[[Batch], Update],
        draws: np.random.Generator,
    ) -> Update:
        with ImageVictim.of(model).drawing(lambda shape: gaussian(shape, draws)):
            return gradient(batch)
