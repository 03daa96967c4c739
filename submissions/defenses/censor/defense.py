"""CENSOR (Zhang et al., NDSS 2025): a gradient from the subspace orthogonal to the client's own.

For images and text. Random directions are drawn tensor by tensor, what they have of the gradient is
taken out of them, and they are scaled to its norm; of several such candidates the one is sent after
a step of which the loss is least. Two readings of the projection of a unit direction r off g:

    printed   r - (r.g / g.g) g    which is orthogonal to g
    released  r - (r.g / |g|) g    which is so only where |g| = 1: of a smaller gradient r keeps
                                   nearly all it has, of a larger one it is turned about

The authors' code, read as `released`, sends the gradient itself where no candidate lowers the loss.
`printed` never does: a candidate is drawn from the posterior over the subspace, in which g is not.
Difference: losses are told in float64, since an orthogonal step changes them by less than
float32 holds.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor

from benchmark.api import Batch, Defense, Update, Victim

_NOTHING = 1e-5  # norm of a direction that is left of a unit one by rounding alone


@dataclass(frozen=True)
class Censor(Defense):
    """Sends the best of several gradients that are not the client's."""

    reading: Literal["printed", "released"] = "printed"
    """Of the projection, and of what is sent where no candidate lowers the loss."""
    candidates: PositiveInt = 20
    """Directions drawn for an update."""
    rate: PositiveFloat = 1e-4
    """Of the step after which the loss is told; the authors' own."""

    def compute_update(
        self,
        batch: Batch,
        model: Victim,
        gradient: Callable[[Batch], Update],
        draws: np.random.Generator,
    ) -> Update:
        own = gradient(batch)
        twin = copy.deepcopy(model).double().requires_grad_(False)
        start = {name: weight.clone() for name, weight in twin.weights().items()}
        best = own
        least = float(twin.loss(batch)) if self.reading == "released" else float("inf")
        room = torch.empty_like(max(own.values(), key=Tensor.numel)).flatten()
        places = [_Place(each, room, self.reading) for each in own.values()]
        drawn, spare = _empty_like(own), _empty_like(own)
        for _ in range(self.candidates):
            for place, direction in zip(places, drawn.values(), strict=True):
                place.draw(direction, draws)
            for name, weight in twin.weights().items():
                step = torch.mul(drawn[name], self.rate, out=room[: weight.numel()].view_as(weight))
                torch.sub(start[name], weight.copy_(step), out=weight)
            if (found := float(twin.loss(batch))) < least:
                best, least = drawn, found
                drawn, spare = spare, drawn
        return best


class _Place:
    """A tensor of a client's gradient, and what candidates have in its place.

    All is done in memory that is there: new pages for each candidate cost as much as its draws.

    Args:
        own: the gradient.
        room: as many numbers, to reckon in.
        reading: of the projection.
    """

    def __init__(self, own: Tensor, room: Tensor, reading: str) -> None:
        self._norm = own.norm()
        self._unit = own / self._norm
        self._taken = self._unit if reading == "printed" else own
        self._room = room[: own.numel()].view_as(own)

    def draw(self, direction: Tensor, draws: np.random.Generator) -> None:
        """Make a tensor a direction less what it has of the gradient, of the gradient's norm."""
        held = direction if direction.device.type == "cpu" else torch.empty(direction.shape)
        draws.standard_normal(dtype=np.float32, out=held.numpy())
        direction.copy_(held)
        direction /= direction.norm()
        along = torch.mul(direction, self._unit, out=self._room).sum()
        direction -= torch.mul(self._taken, along, out=self._room)
        size = direction.norm()
        if self._norm == 0 or size <= _NOTHING:
            direction.zero_()
        else:
            direction *= self._norm / size


def _empty_like(update: Update) -> Update:
    return Update({name: torch.empty_like(each) for name, each in update.items()})
