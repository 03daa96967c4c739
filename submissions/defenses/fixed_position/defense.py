"""Fixed sine-cosine positions instead of learned ones (APRIL, Lu et al., CVPR 2022, section 4.2).

For images. No position gradient exists, so none is sent; the server knows the positions. The paper
does not say which encoding it means, and the choice decides what is hidden: see
`benchmark/victims/positions.py` for the three and their ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from benchmark.api import Defense, ImageVictim, Victim


@dataclass(frozen=True)
class FixedPosition(Defense):
    """Sine-cosine positions, prefix tokens at zero, not trained."""

    encoding: Literal["sincos_1d", "sincos_2d", "vaswani"] = "sincos_1d"
    """Over the patch's index, of full rank, or as Vaswani et al. have it, where rounding leaves
    less; or over row and column, of rank 2 * side - 1."""

    def harden(self, model: Victim, generator: torch.Generator) -> Victim:
        victim = ImageVictim.of(model)
        _ = victim.anatomy  # not applicable to a model without an image's positions
        return victim.with_fixed_positions(self.encoding)
