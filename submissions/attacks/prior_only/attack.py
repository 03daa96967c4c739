"""Control: answers with the mean image of the public split; the update is not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmark.api import Attack, Grant, Observation, Reconstruction


@dataclass(frozen=True)
class PriorOnly(Attack):
    """What an attacker knows before any update; failed trials are scored as this."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.DATA_STATISTICS})

    def reconstruct(self, seen: Observation) -> Reconstruction:
        mean_image = seen.data_statistics.mean_image
        return Reconstruction(mean_image.expand(seen.batch_size, -1, -1, -1))
