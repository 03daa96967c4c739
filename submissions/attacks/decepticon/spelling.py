"""From exact readings to tokens in place: whose each is, and which follows which."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from submissions.attacks.decepticon.bins import Bins
from submissions.attacks.decepticon.certify import certify
from submissions.attacks.decepticon.grouping import group
from submissions.attacks.decepticon.items import Items
from submissions.attacks.decepticon.marks import Marked
from submissions.attacks.decepticon.readout import Readings
from submissions.attacks.decepticon.sequences import chain, groups
from submissions.attacks.decepticon.sheet import Sheet
from submissions.attacks.decepticon.tables import Tables
from submissions.attacks.decepticon.thresholds import CHOSEN


def spell(sheet: Sheet, bins: Bins, exact: Readings, tables: Tables) -> tuple[Sheet, Tensor]:
    """Return what was read exactly, each token in the sequence whose marks it carries.

    Args:
        sheet: empty.
        bins: what they hold.
        exact: readings beyond doubt.
        tables: what the server knows.

    Returns:
        The sheet, and the marks (sequences, marks) of its first sequences.
    """
    batch = len(sheet.tokens)
    marked = Marked.of(bins.vectors, exact, tables)
    known = groups(marked.own[marked.plain], batch)
    owner, sure = group(marked, known, batch, len(tables.positions))
    items = Items.of(marked, owner, sure, known, bins.blocks, tables)
    sizes = items.sizes(len(known), batch)
    items = certify(items, sizes, batch, tables)
    return _place(sheet, items, sizes, tables), known.repeat_interleave(sizes, 0)


def _place(sheet: Sheet, items: Items, sizes: Tensor, tables: Tables) -> Sheet:
    """Return items in place: of a group of one sequence at once, of a larger one along labels."""
    starts = sizes.cumsum(0) - sizes
    alone = items.where(sizes[items.group] == 1)
    sheet = sheet.with_items(alone, starts[alone.group], tables)
    factors = sheet.corrections(tables.codes, int(items.block.max()) + 1)
    sheet = replace(sheet, codes=sheet.codes / factors[sheet.blocks])
    miss = CHOSEN.clear * sheet.miss(tables.codes)
    for one in (sizes > 1).nonzero()[:, 0].tolist():
        lines = (items.group == one).nonzero()[:, 0]
        mine = items.where(lines.repeat_interleave(items.copies[lines]))
        mine = replace(mine, code=mine.code / factors[mine.block])
        codes = tables.codes[tables.words[mine.token]]
        labels = torch.where(mine.copies == 1, mine.code, torch.nan)
        sequence, whole = chain(mine.position, codes, labels, int(sizes[one]), miss)
        kept = sequence >= 0
        mine = replace(mine, sure=mine.sure & whole)
        sheet = sheet.with_items(mine.where(kept), starts[one] + sequence[kept], tables)
    return sheet
