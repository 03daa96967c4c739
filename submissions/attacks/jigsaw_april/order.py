"""Patches put where their edges fit: pairs change places while the jumps between patches fall."""

from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor


def arrange(patches: Tensor, movable: Tensor) -> Tensor:
    """Return an order (patches,) int64 in which neighbours' edges differ least; a local optimum.

    Args:
        patches: (patches, channel, side, side), in the places where they begin, row by row.
        movable: (patches,) bool, those that may change places among themselves.
    """
    grid = round(len(patches) ** 0.5)
    right = _jumps(patches[..., -1], patches[..., 0])
    below = _jumps(patches[..., -1, :], patches[..., 0, :])
    order = list(range(len(patches)))
    pairs = list(combinations(movable.nonzero()[:, 0].tolist(), 2))
    while True:
        gains = [(_cost(order, right, below, grid, i, j), i, j) for i, j in pairs]
        best = min(gains, default=(0.0, 0, 0))
        if best[0] > -1e-9:
            return torch.tensor(order)
        _, i, j = best
        order[i], order[j] = order[j], order[i]


def _cost(
    order: list[int],
    right: list[list[float]],
    below: list[list[float]],
    grid: int,
    i: int,
    j: int,
) -> float:
    """Return by how much the sum of jumps rises where two places change their patches."""
    joints = {joint for place in (i, j) for joint in _joints(place, grid)}
    swap = {i: order[j], j: order[i]}
    rise = 0.0
    for one, other, across in joints:
        table = right if across else below
        rise += table[swap.get(one, order[one])][swap.get(other, order[other])]
        rise -= table[order[one]][order[other]]
    return rise


def _joints(place: int, grid: int) -> list[tuple[int, int, bool]]:
    """Return the joints of a place: first place, second place, whether they lie across."""
    row, column = divmod(place, grid)
    return [
        *([(place - 1, place, True)] if column else []),
        *([(place, place + 1, True)] if column + 1 < grid else []),
        *([(place - grid, place, False)] if row else []),
        *([(place, place + grid, False)] if row + 1 < grid else []),
    ]


def _jumps(ends: Tensor, starts: Tensor) -> list[list[float]]:
    """Return the mean absolute difference of each end (n, ...) from each start, n lists of n."""
    ends, starts = ends.flatten(1).double(), starts.flatten(1).double()
    found: list[list[float]] = (torch.cdist(ends, starts, p=1) / ends.shape[1]).tolist()
    return found
