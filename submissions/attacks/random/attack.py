"""Control: answers with uniform noise; neither the update nor the data is read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import Attack, Grant, Observation, Reconstruction, anatomy


@dataclass(frozen=True)
class Random(Attack):
    """Pixels drawn from [0, 1)."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    def reconstruct(self, seen: Observation) -> Reconstruction:
        parts = anatomy(seen.model)
        shape = (seen.batch_size, parts.channels, parts.size, parts.size)
        return Reconstruction(torch.rand(shape, generator=seen.generator))
