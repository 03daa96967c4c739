"""Rows without a gradient, which cost nothing.

A classifier that reads its class token alone leaves every other token of its last block without a
gradient. What such a zero row is multiplied with needs no product, and neither does its derivative:
a row is zero in all its features where the loss does not read it, or where what it went through is
constant, as a dead ReLU is; in either case it stays zero nearby.
"""

from __future__ import annotations

from torch import Tensor


def nonzero_rows(gradient: Tensor) -> Tensor | None:
    """Return which rows of (..., features), counted flat, have a gradient; None where all have.

    Where none has, a factor may vanish at this point alone (keys of a blank image), so all are
    kept; as they are on other devices than the CPU, which a look would stall.
    """
    if gradient.ndim < 2 or gradient.device.type != "cpu":
        return None
    if bool(gradient[:1].any(-1).all()):  # mostly enough to know
        return None
    rows = gradient.flatten(0, -2)
    alive = (rows.amax(1) != 0) | (rows.amin(1) != 0)  # several times quicker than any()
    return alive.nonzero()[:, 0] if 0 < int(alive.sum()) < len(alive) else None


def gather_rows(alive: Tensor | None, tensor: Tensor) -> Tensor:
    """Return the nonzero rows of (..., features), (nonzero, features); all for None."""
    return tensor if alive is None else tensor.flatten(0, -2).index_select(0, alive)


def scatter_rows(alive: Tensor | None, rows: Tensor, like: Tensor) -> Tensor:
    """Return rows where they were taken from, in a tensor (*like's, features), zero elsewhere."""
    if alive is None:
        return rows
    whole = rows.new_zeros(like.shape[:-1].numel(), rows.shape[1])
    return whole.index_copy_(0, alive, rows).view(*like.shape[:-1], -1)
