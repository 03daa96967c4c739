"""What is certified of exact readings: what fits in one way alone."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from submissions.attacks.decepticon.items import Items
from submissions.attacks.decepticon.readout import Readings
from submissions.attacks.decepticon.tables import Tables
from submissions.attacks.decepticon.thresholds import CHOSEN


def twins(lines: Readings) -> Tensor:
    """Return which readings have in their bin another of the same factor, (readings,) bool.

    The sum is then the same with the tokens in each other's place.
    """
    found = torch.zeros(len(lines), dtype=torch.bool)
    for apart in range(1, int(lines.count.max())):
        factor, other = lines.factor[apart:], lines.factor[:-apart]
        same = lines.bin[apart:] == lines.bin[:-apart]
        same &= (factor - other).abs() < CHOSEN.twins * factor.abs()
        found[apart:] |= same
        found[:-apart] |= same
    return found


def certify(items: Items, sizes: Tensor, batch: int, tables: Tables) -> Items:
    """Return the items, none sure where more of the sure stand than sequences can hold.

    Nor is any other of that group then, for its marks may be those of several sequences, or a
    sum; nor of one that holds little. First tokens do not tell: those of other groups may be
    the same.

    Args:
        items: sure where each can be of no other group.
        sizes: (groups,) int64, of sequences.
        batch: number of sequences; a lone one has no other's tokens.
        tables: what the server knows.

    Returns:
        Those that were sure last, which so overrule others when written.
    """
    items = items.where(items.sure.long().argsort(stable=True))
    everywhere = torch.arange(int(items.position.max()) + 1)
    table = items.where(items.sure).table(len(sizes), len(everywhere))
    telling = tables.visible(everywhere).all(1)
    crowded = (table > sizes[:, None]) & telling
    sound = ~crowded[items.group, items.position]
    if batch > 1:
        held = (table > 0).float().mean(1) > CHOSEN.held_places
        sound &= (held & ~crowded.any(1))[items.group]
    return replace(items, sure=items.sure & sound)
