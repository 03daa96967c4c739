"""Quantisation of the update (QSGD, Alistarh et al., NeurIPS 2017).

For images and text. Of each tensor an entry is one of evenly spaced levels from minus to plus its
largest magnitude, zero among them. Differences from the paper: that range in place of the norm, and
by default the nearest level in place of a random one of the two around.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from benchmark.api import Defense, Update, Victim


@dataclass(frozen=True)
class Quantise(Defense):
    """Rounds each entry to a level."""

    bits: Annotated[int, Field(ge=2, le=16)] = 8
    """Of an entry: 2 ** bits - 1 levels."""
    rounding: Literal["nearest", "random"] = "nearest"
    """At random an entry is right in the mean."""

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        return Update({name: self._rounded(tensor, draws) for name, tensor in update.items()})

    def wire_bytes(self, sent: Update) -> int:
        """Return the bytes of the entries' bits, and of a float a tensor, its step."""
        return sum(-(-self.bits * tensor.numel() // 8) + 4 for tensor in sent.values())

    def _rounded(self, tensor: Tensor, draws: np.random.Generator) -> Tensor:
        step = tensor.abs().max() / (2 ** (self.bits - 1) - 1)
        if step == 0:
            return tensor
        levels = tensor / step
        if self.rounding == "nearest":
            return levels.round() * step
        lift = torch.from_numpy(draws.random(tensor.shape, dtype=np.float32))
        return (levels + lift.to(tensor.device)).floor() * step
