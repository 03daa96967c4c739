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
from benchmark.toolbox.noise import gaussian

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
        for _ in range(self.candidates):
            drawn = Update({name: self._candidate(each, draws) for name, each in own.items()})
            for name, weight in twin.weights().items():
                weight.copy_(start[name] - self.rate * drawn[name])
            if (found := float(twin.loss(batch))) < least:
                best, least = drawn, found
        return best

    def _candidate(self, own: Tensor, draws: np.random.Generator) -> Tensor:
        """Return a direction less what it has of a tensor's gradient, of the gradient's norm."""
        direction = gaussian(own.shape, draws).to(own)
        direction /= direction.norm()
        norm = own.norm()
        if norm == 0:
            return own
        unit = own / norm
        along = (direction * unit).sum()
        left = direction - along * (unit if self.reading == "printed" else own)
        size = left.norm()
        return left * (norm / size) if size > _NOTHING else torch.zeros_like(own)
