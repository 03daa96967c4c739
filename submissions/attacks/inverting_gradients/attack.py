"""Inverting Gradients (Geiping, Bauermeister, Dröge and Moeller, NeurIPS 2020).

The cosine of all gradients and total variation, by signed Adam with steps down at 3/8, 5/8 and 7/8,
pixels kept in range: the authors' code and its defaults. Difference: labels, where they are not
granted, are inferred from the head's gradient.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from benchmark.api import Grant, Observation
from benchmark.toolbox.matching import Adam, CosineDistance, Search, SearchAttack, Steps, Term
from benchmark.toolbox.priors import TotalVariation


@dataclass(frozen=True)
class InvertingGradients(SearchAttack):
    """Cosine and total variation, by signed Adam."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    steps: PositiveInt = 4800
    rate: PositiveFloat = 0.1
    total_variation: NonNegativeFloat = 1e-4
    """The default of the authors' script; their experiments take several."""
    restarts: PositiveInt = 1

    def plan(self, seen: Observation) -> Search:
        return Search(
            CosineDistance(),
            self.steps,
            Adam(sign=True),
            self.rate,
            Steps(),
            terms=(Term(self.total_variation, TotalVariation("anisotropic")),),
            restarts=self.restarts,
            clamp=True,
        )
