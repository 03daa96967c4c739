"""Control: answers with the mean image, or the most frequent token, of the public split.

The update is not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import (
    Attack,
    Grant,
    NotApplicable,
    Observation,
    Reconstruction,
)


@dataclass(frozen=True)
class PriorOnly(Attack):
    """What an attacker knows before any update; failed trials are scored as this."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    def applies(self, seen: Observation) -> None:
        known = seen.knowledge
        text = seen.model.track == "text"
        if text and (known.public_text is None or known.length is None):
            raise NotApplicable("needs length and public_text, which the protocol does not grant")
        if not text and known.data_statistics is None:
            raise NotApplicable("needs data_statistics, which the protocol does not grant")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        if seen.model.track == "text":
            common = int(torch.bincount(seen.public_text.flatten()).argmax())
            return Reconstruction(tokens=torch.full((seen.batch_size, seen.length), common))
        mean_image = seen.data_statistics.mean_image
        return Reconstruction(mean_image.expand(seen.batch_size, -1, -1, -1))
