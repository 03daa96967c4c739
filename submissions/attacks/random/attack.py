"""Control: answers with uniform noise, or uniform tokens; update and data are not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    Observation,
    Reconstruction,
    TextVictim,
)


@dataclass(frozen=True)
class Random(Attack):
    """Pixels drawn from [0, 1), tokens from the vocabulary."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    def applies(self, seen: Observation) -> None:
        if seen.model.track == "text":
            seen.knowledge.require(Grant.LENGTH)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        if seen.model.track == "text":
            words, size = TextVictim.of(seen.model).spec.vocabulary, (seen.batch_size, seen.length)
            return Reconstruction(tokens=torch.randint(words, size, generator=seen.generator))
        spec = ImageVictim.of(seen.model).spec
        shape = (seen.batch_size, spec.channels, spec.size, spec.size)
        return Reconstruction(torch.rand(shape, generator=seen.generator))
