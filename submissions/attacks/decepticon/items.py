"""Tokens in place, and which label the gradient of each names."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from submissions.attacks.decepticon.marks import Marked
from submissions.attacks.decepticon.tables import Tables
from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class Items:
    """Tokens in place, each once however many bins it was read in.

    Attributes:
        position: (items,) int64.
        token: (items,) int64, by row of the tables.
        group: (items,) int64.
        block: (items,) int64, where it was read.
        code: (items,), of the label, or the sum of those of equal items of several sequences.
        copies: (items,) int64, how many of them.
        sure: (items,) bool, whether it can be of no other group.
    """

    position: Tensor
    token: Tensor
    group: Tensor
    block: Tensor
    code: Tensor
    copies: Tensor
    sure: Tensor

    @staticmethod
    def of(
        marked: Marked, group: Tensor, sure: Tensor, known: Tensor, blocks: Tensor, tables: Tables
    ) -> Items:
        """Return the readings that have a group; what one token leaves in several bins adds up.

        Args:
            marked: the readings.
            group: (readings,), -1 for none.
            sure: (readings,) bool.
            known: (groups, marks).
            blocks: (bins,).
            tables: what the server knows.
        """
        raw = _codes(marked, group, known, tables)
        kept = group >= 0
        lines, group, sure = marked.readings.where(kept), group[kept], sure[kept]
        keys = torch.stack([lines.position, lines.token, group, blocks[lines.bin]])
        keys, inverse = torch.unique(keys, dim=1, return_inverse=True)
        code = raw.new_zeros(keys.shape[1]).index_add_(0, inverse, raw)
        usual = 1 + CHOSEN.codes / 2
        for block in torch.unique(keys[3]):  # the gradient loses a little at every norm it passes
            here = keys[3] == block
            code[here] *= usual / code[here].median()
        copies = (code / usual).round().long().clamp_min(1)
        copies = torch.ones_like(copies) if tables.parts.masked else copies
        often = torch.bincount(inverse[sure], minlength=len(code))
        place = keys[2] * (int(keys[0].max()) + 1) + keys[0]
        most = often.new_zeros(int(place.max()) + 1).scatter_reduce_(0, place, often, "amax")
        certain = (often > 0) & (often >= CHOSEN.rare * most[place])
        return Items(*[*keys, code, copies, certain])

    def where(self, chosen: Tensor) -> Items:
        """Return some items, by mask or index."""
        return Items(*(getattr(self, field.name)[chosen] for field in fields(self)))

    def sizes(self, number: int, batch: int) -> Tensor:
        """Return how many sequences each group has, (groups,) int64, `batch` at most in all."""
        table = self.table(number, int(self.position.max()) + 1)
        sizes = table.quantile(0.9, dim=1).round().long().clamp_min(1)
        while int(sizes.sum()) > batch:
            sizes[sizes.argmax()] -= 1
        return sizes

    def table(self, number: int, places: int) -> Tensor:
        """Return how many items stand at each place of each group, (groups, places)."""
        table = torch.zeros(number, places)
        return table.index_put_((self.group, self.position), self.copies.float(), accumulate=True)


def _codes(marked: Marked, group: Tensor, known: Tensor, tables: Tables) -> Tensor:
    """Return the gradient that reached each reading that has a group, (readings with one,)."""
    kept = group >= 0
    lines = marked.readings.where(kept)
    alone = (lines.count == 1)[:, None]
    inputs, scale = tables.inputs(lines.position, lines.token)
    inputs[:, tables.layout.marks] += torch.where(alone, marked.alone[kept], known[group[kept]])
    spread = inputs.std(1, correction=0)
    # the norm before the MLP divides by the spread; where norms stand before, the last too
    return -lines.factor * scale * spread * (spread if tables.parts.pre_norm else 1)
