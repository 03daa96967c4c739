"""What fills an imprint's matrices up, so that their ranks and rows look as any others'.

Nothing of it changes what the model computes, or the gradients that are read:

- Units of a first layer that never fire may have any weights, in both layers of an MLP.
- An attention is silent whatever it attends to where its projection reads no entry of the heads
  that its values write: even ones and odd ones.
- Entries of the width that hold nothing but a norm's shift, alike in all of them, are not seen by
  rows that add up to zero there; and what is written there in sums that cancel is next to nothing.
- The decoder reads carriers alone, for the norm before it lets through no others.
"""

from __future__ import annotations

import torch
from torch import Tensor

from benchmark.api import ParameterSlice, TextVictim, Victim, weights
from submissions.attacks.decepticon.layout import Layout

_UNLIKE = 0.1  # of a row's size, what it has in unseen entries: cosines of rows are 0.99 about
_DEAD = 4.0  # sizes of a row times the width's root: no normed input reaches beyond one
_CANCEL = 8  # rows beside each other, whose bins are so near that they let through alike


def hide(model: Victim, generator: torch.Generator) -> None:
    """Fill the matrices of an imprinted language victim up, in place.

    Args:
        model: a language victim, imprinted with `hidden`.
        generator: draws the filling.
    """
    parts, known = TextVictim.of(model).anatomy, weights(model)
    layout = Layout.of(parts, hidden=True)

    def draw(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator)

    def fill_attention(i: int) -> None:
        block, head = parts.blocks[i], layout.width // parts.heads
        starts = head * torch.arange(0 if i else len(layout.anchors))  # the first one marks
        copying = (starts[:, None] + torch.arange(layout.share)).flatten()
        free = torch.ones(layout.width, dtype=torch.bool)
        free[copying] = False
        even = torch.arange(layout.width) % 2 == 0
        value, projection = block.value.weight.of(known), block.projection.weight.of(known)
        size = float(projection.abs().max()) or 1.0
        value[free & ~even] = draw(value[free & ~even])
        projection[:, free & even] = size * draw(projection[:, free & even])
        for layer in (block.query, block.key):
            chosen = torch.ones(layout.width, dtype=torch.bool)
            chosen[starts] = False  # the heads' one score
            weight = layer.weight.of(known)
            weight[chosen] = draw(weight[chosen]) / layout.width**0.5

    def fill_units(i: int) -> None:
        block = parts.blocks[i]
        first, second = block.first.weight.of(known), block.second.weight.of(known)
        assert block.first.bias is not None
        live = len(first) - layout.dead
        size, flow = float(first[0].norm()), float(second[:, 0].norm())
        root = layout.width**0.5
        first[live:] = size * draw(first[live:]) / root
        block.first.bias.of(known)[live:] = -_DEAD * size * root
        second[: layout.tail.start, live:] = flow * draw(second[: layout.tail.start, live:]) / root
        if rows_are_units(block.first.weight):
            first[:live, layout.blind] = _UNLIKE * size * apart(draw(first[:live, layout.blind]))
        else:
            unlike = apart(draw(second[layout.blind, :live]).T)
            second[layout.blind, :live] = _UNLIKE * flow * cancelling(unlike).T

    with torch.no_grad():
        for i in range(len(parts.blocks)):
            fill_attention(i)
            fill_units(i)
        if not parts.tied:
            decoder = parts.decoder.weight.of(known)
            first = int(parts.decoder.bias is None)  # whose column 0 reads a constant
            decoder[:, first : layout.tail.start] = draw(decoder[:, first : layout.tail.start])


def rows_are_units(weight: ParameterSlice) -> bool:
    """Tell whether a first layer's matrix is stored with a row a unit, not an entry."""
    return not weight.transposed


def apart(rows: Tensor) -> Tensor:
    """Return rows (n, entries) that add up to zero, of norm one."""
    rows = rows - rows.mean(1, keepdim=True)
    return rows / rows.norm(dim=1, keepdim=True)


def cancelling(rows: Tensor) -> Tensor:
    """Return rows (n, entries) less the mean of each eight, and zero in the first's long bin."""
    found = torch.zeros_like(rows)
    groups = rows[_CANCEL : len(rows) // _CANCEL * _CANCEL].reshape(-1, _CANCEL, rows.shape[1])
    less = (groups - groups.mean(1, keepdim=True)).flatten(0, 1)
    found[_CANCEL : _CANCEL + len(less)] = less
    return found
