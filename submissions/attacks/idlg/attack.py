"""Improved Deep Leakage from Gradients (Zhao, Mopuri and Bilen, 2020).

The label of a single image is read off the signs of the head's gradient, then the image is searched
by L-BFGS. Differences from the authors' code: those of `dlg_lbfgs`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import PositiveInt
from torch import Tensor

from benchmark.api import Grant, ImageVictim, NotApplicable, Observation
from benchmark.toolbox.labels import sign_rule
from benchmark.toolbox.matching import LBFGS, Search, SearchAttack, SquaredDistance


@dataclass(frozen=True)
class IDLG(SearchAttack):
    """The label by its sign, the image by L-BFGS."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    steps: PositiveInt = 6000
    """300 of the authors' steps of 20 iterations."""
    history: PositiveInt = 100
    """Curvature pairs, torch's default."""

    def applies(self, seen: Observation) -> None:
        if seen.batch_size > 1:
            raise NotApplicable(f"reads one label; the batch holds {seen.batch_size} images")
        super().applies(seen)

    def plan(self, seen: Observation) -> Search:
        return Search(SquaredDistance(), self.steps, LBFGS(history=self.history), rate=1.0)

    def labels(self, seen: Observation) -> Tensor:
        return sign_rule(seen.update, ImageVictim.of(seen.model).head, seen.batch_size)
