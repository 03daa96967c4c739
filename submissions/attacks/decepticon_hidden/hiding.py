"""What fills an imprint's matrices up, so that their ranks and rows look as any others'.

What the server reads stays as it is:

- Units of a first layer that never fire may have any weights, in both layers of an MLP.
- An attention is silent whatever it attends to where its values write odd entries of the heads and
  its projection reads even ones.
- Entries of the width that hold a norm's shift and nothing else are alike, and not seen by rows
  that add up to zero over them; what is written to them in sums that cancel is next to nothing.
- The decoder reads the carriers alone, for the norm before it lets no other entry through.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.api import ParameterSlice, TextAnatomy, TextVictim, Victim, weights
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
    parts = TextVictim.of(model).anatomy
    filling = _Filling(parts, Layout.of(parts, hidden=True), weights(model), generator)
    with torch.no_grad():
        for block in range(len(parts.blocks)):
            filling.fill_attention(block)
            filling.fill_units(block)
        if not parts.tied:
            filling.fill_decoder()


@dataclass(frozen=True)
class _Filling:
    parts: TextAnatomy
    layout: Layout
    known: Mapping[str, Tensor]
    generator: torch.Generator

    def fill_attention(self, number: int) -> None:
        """Give a block's queries and keys any weights, values odd ones, the projection even ones.

        What the heads of the first block score and copy, which marks, stays.
        """
        layout, known, block = self.layout, self.known, self.parts.blocks[number]
        marking = torch.arange(0 if number else len(layout.anchors))
        scores = layout.width // self.parts.heads * marking
        copies = (scores[:, None] + torch.arange(layout.share)).flatten()
        odd = torch.arange(layout.width) % 2 == 1
        free, unscored = torch.ones_like(odd), torch.ones_like(odd)
        free[copies] = False
        unscored[scores] = False
        value, projection = block.value.weight.of(known), block.projection.weight.of(known)
        size = float(projection.abs().max()) or 1.0
        value[free & odd] = self._draw(value[free & odd])
        projection[:, free & ~odd] = size * self._draw(projection[:, free & ~odd])
        for layer in (block.query, block.key):
            weight = layer.weight.of(known)
            weight[unscored] = self._draw(weight[unscored]) / layout.width**0.5

    def fill_units(self, number: int) -> None:
        """Give a block's dead units any weights, and the stored rows of live ones a difference."""
        layout, block, root = self.layout, self.parts.blocks[number], self.layout.width**0.5
        first, second = block.first.weight.of(self.known), block.second.weight.of(self.known)
        assert block.first.bias is not None
        live = len(first) - layout.dead
        size, flow = float(first[0].norm()), float(second[:, 0].norm())
        first[live:] = size * self._draw(first[live:]) / root
        block.first.bias.of(self.known)[live:] = -_DEAD * size * root
        written = second[: layout.tail.start, live:]  # the carriers hear of live ones alone
        written.copy_(flow * self._draw(written) / root)
        if rows_are_units(block.first.weight):
            unseen = first[:live, layout.blind]
            unseen.copy_(_UNLIKE * size * apart(self._draw(unseen)))
        else:
            unseen = second[layout.blind, :live]
            unseen.copy_(_UNLIKE * flow * cancelling(apart(self._draw(unseen).T)).T)

    def fill_decoder(self) -> None:
        """Give the decoder any weights where nothing reaches it; column 0 may read a constant."""
        first = int(self.parts.decoder.bias is None)
        unread = self.parts.decoder.weight.of(self.known)[:, first : self.layout.tail.start]
        unread.copy_(self._draw(unread))

    def _draw(self, like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=self.generator)


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
