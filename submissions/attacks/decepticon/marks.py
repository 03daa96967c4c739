"""The marks of readings: what bins hold beyond tokens and positions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from submissions.attacks.decepticon.readout import Readings
from submissions.attacks.decepticon.tables import Tables


@dataclass(frozen=True)
class Marked:
    """Readings and the marks they carry.

    Attributes:
        readings: of bins, all or some.
        sums: (bins, marks), weighted sums over each bin's readings.
        weight: (readings,), of each in them.
        seen: (readings, marks) bool, which marks a token at that position carries.
        share: entries of a mark.
    """

    readings: Readings
    sums: Tensor
    weight: Tensor
    seen: Tensor
    share: int

    @staticmethod
    def of(vectors: Tensor, readings: Readings, tables: Tables) -> Marked:
        """Return marks: what a bin's vector has beyond its readings and the norm's shift."""
        layout = tables.layout
        sums = tables.tokens[readings.token] + tables.positions[readings.position]
        sums = readings.factor[:, None] * sums
        rest = vectors - torch.zeros_like(vectors).index_add_(0, readings.bin, sums)
        marks = rest[:, layout.marks] - rest[:, layout.content].mean(1, keepdim=True)
        _, scale = tables.inputs(readings.position, readings.token)
        seen = tables.visible(readings.position)
        return Marked(readings, marks, readings.factor * scale, seen, layout.share)

    @property
    def alone(self) -> Tensor:
        """Each reading's marks (readings, marks), as if alone in its bin."""
        return self.sums[self.readings.bin] / self.weight[:, None]

    @property
    def own(self) -> Tensor:
        """The same, nan where unseen."""
        return self.alone.where(self.seen, torch.nan)

    @property
    def plain(self) -> Tensor:
        """Which readings are alone in their bin and carry all marks, (readings,) bool."""
        plain = self.readings.exact & (self.readings.count == 1)
        full = plain & self.seen.all(1)
        return full if bool(full.any()) else plain

    def of_groups(self, known: Tensor, here: Tensor) -> tuple[Tensor, Tensor]:
        """Return the marks that readings would have in each group, and which of them are told.

        A head that does not see its anchor shows some token before it: the first one shows itself.

        Args:
            known: (groups, marks).
            here: (k,) int64, readings.

        Returns:
            (k, groups, marks), and (marks,) bool.
        """
        first = (self.readings.position[here] == 0)[:, None]
        copied = known[:, torch.arange(known.shape[1]) % self.share]
        own = known.where(self.seen[here][:, None], copied)
        return own, (self.seen[here] | first).all(0)
