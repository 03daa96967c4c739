"""The update sent in 16 bits (Micikevicius et al., ICLR 2018), which saves bytes before it defends.

For images and text. Gradients are computed in float32 and rounded once, the least that a client in
16 bits loses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from benchmark.api import Defense, Update, Victim

_FORMATS = {"float16": torch.float16, "bfloat16": torch.bfloat16}
_LARGEST = 2.0**15  # of float16 in what is sent; the next power of two is infinite


@dataclass(frozen=True)
class HalfPrecision(Defense):
    """Rounds every number to a format of 16 bits and back."""

    format: Literal["float16", "bfloat16"] = "bfloat16"
    """`float16` keeps 11 bits of a number, `bfloat16` 8 and a wider range."""

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        largest = max(float(tensor.abs().max()) for tensor in update.values())
        scale = 1.0  # a power of two, as loss scaling has it: else small gradients are zero
        if self.format == "float16" and largest > 0:
            scale = float(2 ** torch.tensor(_LARGEST / largest).log2().floor())
        chosen = _FORMATS[self.format]
        rounded = {
            key: (tensor * scale).to(chosen).float() / scale for key, tensor in update.items()
        }
        return Update(rounded)

    def wire_bytes(self, sent: Update) -> int:
        """Return two bytes an entry."""
        return sent.nbytes // 2
