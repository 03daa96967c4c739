"""Gradient matching by an attacker who knows the defense (Kerckhoffs); made for this benchmark.

DLG (Zhu, Liu and Han, NeurIPS 2019) as `dlg` runs it, but of the dummy gradient only that is
compared with the update which the defense let through: of a pruned one the entries that were sent,
of a quantised one the levels, of signs the signs, of a clipped one the direction: behind Gaussian
noise of any size, the gradient of the clipping norm that makes the update likeliest is that of
least angle. So it is of DP-SGD, where the update is of a lone example; of several, each was clipped
by itself. Of text it searches for embeddings, as `dlg` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from benchmark.api import Grant, NotApplicable, Observation
from benchmark.toolbox.matching import (
    Adam,
    CosineDistance,
    Objective,
    Search,
    SearchAttack,
    Target,
)
from benchmark.toolbox.matching.gradients import Trace, flatten

Entries = Callable[[Tensor, Tensor], Tensor]
"""Dummy and sent entries of one parameter, each (trials, numel) -> (trials,)."""


@dataclass(frozen=True)
class AdaptiveMatching(SearchAttack):
    """The objective of the defense, by Adam."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})
    text: ClassVar = True

    steps: PositiveInt = 1500
    rate: PositiveFloat = 0.2
    """As of `dlg`."""

    def applies(self, seen: Observation) -> None:
        if seen.defense["name"] == "dp_sgd" and seen.batch_size > 1:
            raise NotApplicable("DP-SGD clips each of several examples by itself")
        _objective(seen.defense)
        super().applies(seen)

    def plan(self, seen: Observation) -> Search:
        return Search(_objective(seen.defense), self.steps, Adam(), self.rate)


def _objective(defense: Mapping[str, Any]) -> Objective:
    """Return what is left to compare behind a defense, by its public description.

    Raises:
        NotApplicable: a defense that is not known here.
    """
    match defense["name"]:
        case "gradient_pruning":
            return OverEntries(_of_those_sent)
        case "quantise":
            width = 1.0 if defense["rounding"] == "random" else 0.5
            return OverEntries(_Levels(int(defense["bits"]), width))
        case "sign_update":
            return OverEntries(_share_of_other_sign)
        case "clip_and_noise" | "dp_sgd":
            return CosineDistance()
    raise NotApplicable(f"knows nothing of the defense {defense['name']}")


@dataclass(frozen=True)
class OverEntries:
    """A sum over the parameters of a number that is taken entry by entry; gradients are formed."""

    of: Entries

    def __call__(self, trace: Trace, target: Target) -> Tensor:
        """Return the sum of each trial, (trials,) float64."""
        parts = [
            self.of(flatten(trace.gradients[name]), target.entries(name)) for name in target.names
        ]
        return torch.stack(parts).double().sum(0)


def _of_those_sent(dummy: Tensor, sent: Tensor) -> Tensor:
    """Return the squared distance over the entries that were not pruned."""
    return ((dummy - sent) * (sent != 0)).square().sum(1)


@dataclass(frozen=True)
class _Levels:
    """The squared distance to the nearest entries that would have been sent as these were.

    Attributes:
        bits: of an entry.
        width: how far from its level an entry may lie, in steps between levels.
    """

    bits: int
    width: float

    def __call__(self, dummy: Tensor, sent: Tensor) -> Tensor:
        step = sent.abs().amax(1, keepdim=True) / (2 ** (self.bits - 1) - 1)
        return ((dummy - sent).abs() - self.width * step).clamp_min(0).square().sum(1)


def _share_of_other_sign(dummy: Tensor, sent: Tensor) -> Tensor:
    """Return how much of the dummy's absolute sum has not the sign that was sent."""
    size = dummy.abs().sum(1).clamp_min(torch.finfo(dummy.dtype).tiny)
    return 1 - (dummy * sent).sum(1) / size
