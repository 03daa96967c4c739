"""The position gradient stays on the client (APRIL, Lu et al., CVPR 2022, sections 3.2 and 4.2).

The server sent the positions at the start of the round, so it knows their values.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from benchmark.api import Defense, LanguageVictim, Update, anatomy, language_anatomy


@dataclass(frozen=True)
class WithholdPosition(Defense):
    """Removes one tensor from the update."""

    def protect_update(
        self, update: Update, model: nn.Module, generator: torch.Generator
    ) -> Update:
        text = isinstance(model, LanguageVictim)
        parts = language_anatomy(model) if text else anatomy(model)
        return update.without(parts.position)
