"""How an inverter is trained: Adam, the best epoch on held-out updates (Wu et al., UAI 2023)."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from benchmark.errors import BenchmarkError
from benchmark.toolbox.inverter.network import Inverter

_RATE = 1e-4  # of Adam; a tenth of it in the second half, as in the paper's code
_AT_ONCE = 64  # updates a step; 256 in the paper's code, whose public data are fifty times ours


class Example(NamedTuple):
    """Updates and what they were made of.

    Attributes:
        inputs: (updates, inputs), what an inverter reads of them.
        images: (updates, batch, channel, height, width), pixels in [0, 1].
    """

    inputs: Tensor
    images: Tensor


def fit(
    inverter: Inverter,
    given: Example,
    held_out: Example,
    epochs: int,
    after_epoch: Callable[[float], None],
) -> float:
    """Train an inverter in place, and return its mean squared error on the held-out updates.

    Of all epochs the one stays whose error there is least; the order of updates is one for all.

    Args:
        inverter: with its first weights.
        given: to train on.
        held_out: of other images.
        epochs: passes over the updates given.
        after_epoch: is told the least error so far.

    Raises:
        BenchmarkError: the error is never a number.
    """
    inverter.scale(given.inputs)
    optimiser = torch.optim.Adam(inverter.parameters(), lr=_RATE, fused=True)
    order = torch.Generator().manual_seed(0)
    least, best = math.inf, None
    for epoch in range(epochs):
        if epoch == epochs // 2:
            optimiser.param_groups[0]["lr"] = 0.1 * _RATE
        for rows in torch.split(torch.randperm(len(given.images), generator=order), _AT_ONCE):
            optimiser.zero_grad()
            loss = least_over_pairings(inverter(given.inputs[rows]), given.images[rows])
            torch.autograd.backward(loss)
            optimiser.step()
        with torch.no_grad():
            error = float(least_over_pairings(inverter(held_out.inputs), held_out.images))
        if error < least:
            least, best = error, copy.deepcopy(inverter.state_dict())
        after_epoch(least)
    if best is None:
        raise BenchmarkError(f"the inverter's error is no number after {epochs} epochs")
    inverter.load_state_dict(best)
    return least


def least_over_pairings(found: Tensor, wanted: Tensor) -> Tensor:
    """Return the mean squared error with each batch's images in the order that makes it least.

    Args:
        found: (updates, batch, channel, height, width).
        wanted: as found.
    """
    if wanted.shape[1] == 1:
        return (found - wanted).square().mean()
    from scipy.optimize import linear_sum_assignment

    errors = (found[:, :, None] - wanted[:, None]).square().flatten(3).mean(3)
    paired = [each[linear_sum_assignment(each.detach().cpu().numpy())].mean() for each in errors]
    return torch.stack(paired).mean()
