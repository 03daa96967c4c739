"""Local differential privacy on the whole update (Decepticons, Fowl et al., ICLR 2023, Fig. 18).

For images and text. The update is scaled down to a norm, then every entry gets independent noise
that does not depend on it. Difference: the paper does not say what its noise level counts; here it
is the standard deviation. No epsilon is claimed: on one update it would be enormous.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from benchmark.api import Defense, Update, Victim
from benchmark.toolbox.noise import add_noise, gaussian, laplacian

_LAWS = {"gaussian": gaussian, "laplacian": laplacian}


@dataclass(frozen=True)
class ClipAndNoise(Defense):
    """Clips the update, and adds noise."""

    norm: PositiveFloat = 1.0
    """Of the update, at most."""
    noise: NonNegativeFloat = 0.001
    """Standard deviation of an entry."""
    law: Literal["laplacian", "gaussian"] = "laplacian"

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        return add_noise(update.clipped(self.norm), self.noise, _LAWS[self.law], draws)
