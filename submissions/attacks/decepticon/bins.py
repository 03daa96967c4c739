"""The bins of the measurement that hold something, out of the gradients of first MLP layers.

Within a block, the gradients of two neighbouring rows differ by the vectors between their two
edges, each weighted by the gradient that reached its token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.toolbox.text.imprinting import measuring
from submissions.attacks.decepticon.denoise import jumps
from submissions.attacks.decepticon.tables import Tables, centred
from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class Bins:
    """What bins hold.

    Attributes:
        vectors: (bins, width), each a weighted sum of vectors.
        content: (bins, entries), theirs in the content entries, centred.
        blocks: (bins,) int64, where each was measured.
    """

    vectors: Tensor
    content: Tensor
    blocks: Tensor

    @staticmethod
    def of(update: Mapping[str, Tensor], tables: Tables, tokens: int) -> Bins:
        """Return the differences of neighbouring rows that hold something.

        Args:
            update: gradients by name.
            tables: what the server knows.
            tokens: number of tokens that send gradient; how many jumps noise may hide.
        """
        parts, layout, count = tables.parts, tables.layout, measuring(tables.parts)
        vectors = []
        for i, block in enumerate(parts.blocks[:count]):
            signs = block.second.weight.of(tables.known)[-1].sign()
            live = signs != 0
            rows = block.first.weight.of(update)[live] * signs[live, None]
            lost = jumps(rows, tokens // count)[1] if tables.noised else rows[:-1] - rows[1:]
            if i == count - 1:  # above the highest edge comes nothing
                lost = torch.cat([lost, rows[-1:]])
            vectors.append(lost)
        sizes = [lost[:, layout.content].norm(dim=1) for lost in vectors]
        least = CHOSEN.signal * max(float(size.max()) for size in sizes if len(size))
        blocks = torch.arange(count).repeat_interleave(torch.tensor([len(size) for size in sizes]))
        held = torch.cat(sizes) > least
        found = [lost[size > least] for lost, size in zip(vectors, sizes, strict=True)]
        joined = torch.cat(found)
        return Bins(joined, centred(joined[:, layout.content]), blocks[held])

    def __len__(self) -> int:
        return len(self.blocks)

    def where(self, chosen: Tensor) -> Bins:
        """Return some bins, by mask or index."""
        return Bins(self.vectors[chosen], self.content[chosen], self.blocks[chosen])
