"""Deep Leakage from Gradients (Zhu, Liu and Han, NeurIPS 2019), as first published.

Images and label logits are searched together by L-BFGS. Differences from the authors' code: a weak
Wolfe line search where it takes full steps, so that a step never raises the loss, and one iteration
a step where it counts twenty. The labels granted by a protocol are not read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveInt

from benchmark.api import Grant, Observation
from benchmark.toolbox.matching import LBFGS, Search, SearchAttack, SquaredDistance


@dataclass(frozen=True)
class DLGLBFGS(SearchAttack):
    """Squared distance of all gradients, by L-BFGS, over images and labels."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    steps: PositiveInt = 6000
    """300 of the authors' steps of 20 iterations."""
    history: PositiveInt = 100
    """Curvature pairs, torch's default."""

    def plan(self, seen: Observation) -> Search:
        optimiser = LBFGS(history=self.history)
        return Search(SquaredDistance(), self.steps, optimiser, rate=1.0, labels="searched")
