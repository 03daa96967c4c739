"""Gradient pruning (Zhu, Liu and Han, NeurIPS 2019, section 5.2; Lin et al., ICLR 2018).

For images and text. Of each tensor the entries of largest magnitude are sent, the others are zero.
Difference from Lin et al.: what is not sent is dropped, not kept for a later round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from benchmark.api import Defense, Update, Victim


@dataclass(frozen=True)
class GradientPruning(Defense):
    """Keeps the largest entries of each tensor, one at least."""

    share: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Of a tensor's entries that are set to zero."""

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        return Update({name: self._pruned(tensor) for name, tensor in update.items()})

    def wire_bytes(self, sent: Update) -> int:
        """Return the bytes of a value and an index for each entry that is left, 4 each."""
        return sum(8 * int(tensor.count_nonzero()) for tensor in sent.values())

    def _pruned(self, tensor: Tensor) -> Tensor:
        """Return a tensor with zeros; of equal magnitudes at the threshold all are kept."""
        size = tensor.abs()
        kept = max(math.ceil((1 - self.share) * size.numel() - 1e-9), 1)
        threshold = size.flatten().kthvalue(size.numel() - kept + 1).values
        return torch.where(size >= threshold, tensor, 0.0)
