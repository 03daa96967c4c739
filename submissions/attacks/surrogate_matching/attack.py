"""Surrogate model extension (Zhu, Yao and Blaschko, ICML 2023): matching what local training moved.

Of many local steps the server sees the sum of gradients at weights it never saw. The paper takes
them all for one gradient of all the examples, at a surrogate on the line between the weights sent
and those returned, and matches its direction. Differences: the place on the line is the best of
four, judged by the search's own objective, where the paper learns it by descent; labels are read
off the head's part of what moved.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from benchmark.api import Grant, LocalTraining, NotApplicable, Observation, Reconstruction, Stack
from benchmark.toolbox.matching import (
    Adam,
    CosineDecay,
    CosineDistance,
    Found,
    Search,
    SearchAttack,
    Term,
    search,
)
from benchmark.toolbox.priors import TotalVariation

_PLACES = (0.0, 0.25, 0.5, 0.75)
"""Between the weights sent, where one step was taken and much of more, and those returned, 1."""


@dataclass(frozen=True)
class SurrogateMatching(SearchAttack):
    """Cosine distance and total variation at four places, and the best of them answers."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    steps: Annotated[int, Field(ge=1)] = 1000
    """Of the searches at all places together."""
    rate: float = 0.1
    total_variation: float = 1e-3

    def plan(self, seen: Observation) -> Search:
        each = min(self.steps, seen.budget.gradient_evaluations) // len(_places(seen))
        prior = Term(self.total_variation, TotalVariation())
        return Search(
            CosineDistance(), max(each, 1), Adam(), self.rate, CosineDecay(), terms=(prior,)
        )

    def applies(self, seen: Observation) -> None:
        if seen.knowledge.local is None:
            raise NotApplicable("clients send one gradient, and no surrogate is needed")
        super().applies(seen)
        if seen.budget.gradient_evaluations < len(_PLACES):
            raise NotApplicable(f"searches: needs {len(_PLACES)} gradient evaluations")

    def reconstruct_stack(self, stack: Stack) -> list[Reconstruction]:
        return [self._reconstruct(seen.averaged()) for seen in stack]

    def _reconstruct(self, seen: Observation) -> Reconstruction:
        plan, labels = self.plan(seen), self._labels(seen)
        found: list[Found] = []
        for place in _places(seen):
            between = Stack([_surrogate(seen, place)])
            found += search(between, plan, [labels], self.matched(seen))
        best = min(found, key=lambda answer: answer.mismatch)
        return replace(best, gradient_evaluations=sum(one.gradient_evaluations for one in found))


def _places(seen: Observation) -> tuple[float, ...]:
    """Return the places that the budget reaches: one takes a gradient at least."""
    return _PLACES[: max(1, seen.budget.gradient_evaluations)]


def _surrogate(seen: Observation, place: float) -> Observation:
    """Return the observation as if its gradient had been taken at weights on the way."""
    local = seen.knowledge.local
    assert isinstance(local, LocalTraining)
    model = copy.deepcopy(seen.model)
    for name, weight in model.weights().items():
        if name in seen.update:
            weight.data.sub_(seen.update[name], alpha=place * local.rate * local.steps)
    return replace(seen, model=model)
