"""The position gradient stays on the client (APRIL, Lu et al., CVPR 2022, sections 3.2 and 4.2).

For images and text. The server sent the positions at the start of the round, so it knows their
values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmark.api import Defense, Update, Victim
from submissions.defenses.withhold.defense import Withhold


@dataclass(frozen=True)
class WithholdPosition(Defense):
    """Removes one tensor from the update."""

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        return Withhold("positions").protect_update(update, model, draws)
