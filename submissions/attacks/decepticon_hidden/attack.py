"""Decepticons whose parameters pass an inspection of ranks and rows (after Fowl et al., ICLR 2023).

The parameters are `decepticon`'s, and read as they are; a sixth of the entries and some units of
each first layer are spared for what fills the matrices up (`hiding.py`). The paper's way, noise on
the measurement, costs exactness; this costs entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import Knowledge, NotApplicable, TextVictim, Victim
from submissions.attacks.decepticon.attack import Decepticon
from submissions.attacks.decepticon_hidden.hiding import hide


@dataclass(frozen=True)
class DecepticonHidden(Decepticon):
    """Bins over most units of all blocks, in matrices of high rank."""

    hidden: ClassVar[bool] = True

    def corrupt(self, model: Victim, known: Knowledge, generator: torch.Generator) -> Victim:
        parts = TextVictim.of(model).anatomy
        if parts.masked or not parts.position_trained:
            raise NotApplicable("a masked model, or fixed positions, leave too little unseen")
        model = super().corrupt(model, known, generator)
        hide(model, generator)
        return model
