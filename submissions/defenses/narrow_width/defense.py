"""A victim narrower than half its number of patches (APRIL, Lu et al., CVPR 2022, Fig. 5).

For images. The closed forms solve for as many unknowns as patches by as many equations as the
width; below half the patches no patch is determined, but the least answer that fits is not far off
where neighbours are alike, as in photographs. The paper doubts that such a network learns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from pydantic import PositiveFloat

from benchmark.api import Defense, ImageVictim, Victim


@dataclass(frozen=True)
class NarrowWidth(Defense):
    """The largest width below `share` of the patches that the heads divide."""

    share: PositiveFloat = 0.5
    """Upper bound of the width, in patches; at least one channel a head is kept."""

    def harden(self, model: Victim, generator: torch.Generator) -> Victim:
        victim = ImageVictim.of(model)
        parts = victim.anatomy
        below = int(self.share * parts.patches - 1e-9)
        width = max(below // parts.heads, 1) * parts.heads
        return victim.with_width(width, generator)
