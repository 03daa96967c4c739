"""The answer as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from submissions.attacks.decepticon.items import Items
from submissions.attacks.decepticon.tables import Tables


@dataclass(frozen=True)
class Sheet:
    """What stands in each place; a place that is not known yet holds -1.

    Attributes:
        tokens: (batch, length) int64.
        certain: (batch, length) bool.
        codes: (batch, length), of each place's label as its gradient shows it; nan where unknown.
        blocks: (batch, length) int64, where that was read.
    """

    tokens: Tensor
    certain: Tensor
    codes: Tensor
    blocks: Tensor

    @staticmethod
    def empty(batch: int, length: int) -> Sheet:
        """Return a sheet with nothing on it."""
        tokens = torch.full((batch, length), -1)
        codes = torch.full((batch, length), torch.nan)
        return Sheet(tokens, torch.zeros_like(tokens, dtype=torch.bool), codes, tokens.clone())

    def with_items(self, items: Items, sequence: Tensor, tables: Tables) -> Sheet:
        """Return it with items in sequences (items,); one that several share tells no label."""
        here = (sequence, items.position)
        codes = torch.where(items.copies == 1, items.code, torch.nan)
        return Sheet(
            self.tokens.index_put(here, tables.words[items.token]),
            self.certain.index_put(here, items.sure),
            self.codes.index_put(here, codes),
            self.blocks.index_put(here, items.block),
        )

    def corrections(self, codes: Tensor, blocks: int) -> Tensor:
        """Return what codes read in each block are to be divided by, (blocks,).

        Args:
            codes: (vocabulary,), of labels.
            blocks: number of them.
        """
        known = self._known()
        factors = torch.ones(blocks)
        ratio = self.codes[:, :-1] / codes[self.tokens[:, 1:]]
        for block in torch.unique(self.blocks[:, :-1][known]):
            factors[block] = ratio[known & (self.blocks[:, :-1] == block)].median()
        return factors

    def miss(self, codes: Tensor) -> float:
        """Return by how much most labels that are known are missed; infinite where none is."""
        known = self._known()
        off = (self.codes[:, :-1] - codes[self.tokens[:, 1:]])[known].abs()
        return float(off.quantile(0.9)) if len(off) else torch.inf

    def _known(self) -> Tensor:
        """Return the places (batch, length - 1) whose code and successor are both known."""
        return ~self.codes[:, :-1].isnan() & self.certain[:, 1:]
