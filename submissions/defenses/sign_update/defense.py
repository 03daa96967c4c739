"""Signs in place of numbers (signSGD, Bernstein et al., ICML 2018).

For images and text. Each entry is sent as -1, 0 or 1; no magnitude is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmark.api import Defense, Update, Victim


@dataclass(frozen=True)
class SignUpdate(Defense):
    """Sends the sign of each entry."""

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        return Update({name: tensor.sign() for name, tensor in update.items()})

    def wire_bytes(self, sent: Update) -> int:
        """Return the bytes of a bit an entry; zeros are too few to count."""
        return sum(-(-tensor.numel() // 8) for tensor in sent.values())
