"""Control: answers with the truth. It marks the ceiling of every metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import Attack, Grant, Observation, Reconstruction


@dataclass(frozen=True)
class Oracle(Attack):
    """Holds the grant that no protocol can give."""

    needs: ClassVar = frozenset({Grant.TRUTH})

    def reconstruct(self, seen: Observation) -> Reconstruction:
        truth = seen.knowledge.require(Grant.TRUTH)
        if seen.model.track == "text":
            return Reconstruction(tokens=truth, certain=torch.ones_like(truth, dtype=torch.bool))
        return Reconstruction(truth)
