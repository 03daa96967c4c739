"""What stands where no rung was read: the label of the token before, marks, words left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmark.toolbox.text.readout import EXACT, Readings
from benchmark.toolbox.text.sequences import SAME, chain, groups
from submissions.attacks.decepticon.spelling import Items, Marked, Tables, above_noise

_AGREE = 0.01  # by which the codes of known labels may be missed
_ROUNDS = 5  # in which factors of blocks and sequences settle
_ROUGH, _TRIALS = 0.2, 101  # range of a factor in logarithms, and how many are tried
_LEAST = 1e-4  # of the commonest label's share: below it is rounding
_CLEAR = 4.0  # times the usual miss: nearer is right, farther is wrong


@dataclass
class Sheet:
    """The answer while it is written; a place not written yet holds -1.

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

    def write(self, items: Items, sequence: Tensor, tables: Tables) -> None:
        """Write items into sequences (items,); one that several share tells no label."""
        here = (sequence, items.position)
        self.tokens[here], self.certain[here] = tables.words[items.token], items.sure
        self.codes[here] = torch.where(items.copies == 1, items.code, torch.nan)
        self.blocks[here] = items.block

    def known(self) -> Tensor:
        """Return the places (batch, length - 1) whose code and successor are both known."""
        return ~self.codes[:, :-1].isnan() & self.certain[:, 1:]

    def corrections(self, codes: Tensor, blocks: int) -> Tensor:
        """Return what codes read in each block are to be divided by, (blocks,).

        Args:
            codes: (vocabulary,), of labels.
            blocks: number of them.
        """
        known = self.known()
        factors = torch.ones(blocks)
        ratio = self.codes[:, :-1] / codes[self.tokens[:, 1:]]
        for block in torch.unique(self.blocks[:, :-1][known]):
            factors[block] = ratio[known & (self.blocks[:, :-1] == block)].median()
        return factors

    def miss(self, codes: Tensor) -> float:
        """Return by how much most labels that are known are missed; infinite where none is."""
        known = self.known()
        off = (self.codes[:, :-1] - codes[self.tokens[:, 1:]])[known].abs()
        return float(off.quantile(0.9)) if len(off) else torch.inf


def spell(sheet: Sheet, vectors: Tensor, blocks: Tensor, exact: Readings, tables: Tables) -> Tensor:
    """Write what was read exactly, each token into the sequence whose marks it carries.

    Args:
        sheet: written on.
        vectors: (rungs, width).
        blocks: (rungs,).
        exact: readings beyond doubt.
        tables: what the server knows.

    Returns:
        The marks (sequences, marks) of the sheet's first sequences.
    """
    batch = len(sheet.tokens)
    marked = Marked.of(vectors, exact, tables)
    known = groups(marked.own[marked.plain], batch)
    group, sure = marked.grouped(known, batch, len(tables.positions))
    found = Items.of(marked, group, sure, known, blocks, tables)
    sizes = found.sizes(len(known), batch)
    _place(sheet, found, sizes, tables)
    return known.repeat_interleave(sizes, 0)


def _place(sheet: Sheet, found: Items, sizes: Tensor, tables: Tables) -> None:
    """Write items: of a group of one sequence at once, of a larger one along the labels."""
    starts, found = sizes.cumsum(0) - sizes, found.doubted(sizes, len(sheet.tokens), tables)
    alone = found.where(sizes[found.group] == 1)
    sheet.write(alone, starts[alone.group], tables)
    factors = sheet.corrections(tables.codes, int(found.block.max()) + 1)
    sheet.codes /= factors[sheet.blocks]
    miss = _CLEAR * sheet.miss(tables.codes)
    for group in (sizes > 1).nonzero()[:, 0].tolist():
        lines = (found.group == group).nonzero()[:, 0]
        mine = found.where(lines.repeat_interleave(found.copies[lines]))
        mine = replace(mine, code=mine.code / factors[mine.block])
        codes = tables.codes[tables.words[mine.token]]
        labels = torch.where(mine.copies == 1, mine.code, torch.nan)
        sequence, whole = chain(mine.position, codes, labels, int(sizes[group]), miss)
        kept = sequence >= 0
        mine = replace(mine, sure=mine.sure & whole)
        sheet.write(mine.where(kept), starts[group] + sequence[kept], tables)


def label_counts(update: Mapping[str, Tensor], tables: Tables, predicted: int) -> Tensor:
    """Return how often each token is a label, (vocabulary,) int64.

    All probability is the decoy's, so the gradient of any other token's logit is its frequency.

    Args:
        update: gradients by name.
        tables: what the server knows.
        predicted: number of labels; of a masked model, at least so many: the rarest counts once.
    """
    parts = tables.parts
    if parts.decoder.bias is not None:
        shares = -parts.decoder.bias.of(update)
    else:
        shares = -parts.decoder.weight.of(update)[:, 0]
    shares = shares.clone()
    shares[-1] = 0
    least = above_noise(shares) if tables.noised else float(shares.max()) * _LEAST
    shares[shares < least] = 0
    if not shares.any():
        return torch.zeros_like(shares, dtype=torch.int64)
    unit = float(shares.sum()) / predicted
    if parts.masked:
        unit = min(unit, float(shares[shares > 0].min()))
    return (shares / unit).round().long()


def fill_anchors(sheet: Sheet, whole: Tensor, tables: Tables) -> None:
    """Write missing first tokens, which stand in the marks of all that follow.

    Args:
        sheet: written on.
        whole: (sequences, marks), of the first ones on the sheet.
        tables: what the server knows.
    """
    share = tables.place.share
    for i, anchor in enumerate(tables.place.anchors):
        if anchor >= len(tables.positions):
            return
        missing = (sheet.tokens[: len(whole), anchor] < 0).nonzero()[:, 0]
        known = tables.anchor_marks(anchor)
        if len(known) < 2:
            return  # one word, which is everywhere
        marks = whole[missing, i * share : (i + 1) * share]
        off = torch.cdist(marks, known, compute_mode="donot_use_mm_for_euclid_dist")
        nearest, second = off.topk(2, dim=1, largest=False).values.T
        near = nearest < SAME * float(known.std())
        # a head may have chosen a neighbour of the anchor, whose position is nearly the same
        same = nearest < EXACT * float(known.std())
        sheet.tokens[missing, anchor] = torch.where(near, tables.words[off.argmin(1)], -1)
        sheet.certain[missing, anchor] = same & (nearest * _CLEAR < second)


def fill_labels(sheet: Sheet, counts: Tensor, tables: Tables) -> None:
    """Write missing tokens that the place before has as its label, a code in its gradient.

    Where the codes of labels known already are missed (dropout on the way of the gradient),
    nothing is written.

    Args:
        sheet: written on.
        counts: (vocabulary,), of each label.
        tables: what the server knows.
    """
    found, nexts, usual = sheet.codes[:, :-1], sheet.tokens[:, 1:], sheet.miss(tables.codes)
    if usual > _AGREE:
        return
    written = nexts[nexts >= 0]
    left = counts - torch.bincount(written, minlength=len(counts))
    candidates = (left > 0).nonzero()[:, 0]
    missing = ~found.isnan() & (nexts < 0)
    if not len(candidates) or not missing.any():
        return
    off = (found[missing][:, None] - tables.codes[candidates]).abs()
    order = off.topk(min(2, len(candidates)), dim=1, largest=False)
    near = order.values[:, 0] < _CLEAR * usual
    clear = (order.values[:, -1] > 2 * _CLEAR * usual) | (len(candidates) == 1)
    nexts[missing] = torch.where(near, candidates[order.indices[:, 0]], -1)
    # of noise a rung has more or less than those by which the miss is known
    sure = sheet.certain[:, :-1][missing] & (not tables.noised)
    sheet.certain[:, 1:][missing] = near & clear & sure


def fill_masked(sheet: Sheet, counts: Tensor, tables: Tables, mask: int) -> None:
    """Write the labels of masked places over the mask, by linear sum assignment of codes.

    A masked model's last attention gives all tokens of a sequence the same gradient; what a masked
    one has beyond it is its label's code.

    Args:
        sheet: written on.
        counts: (vocabulary,), of each label.
        tables: what the server knows.
        mask: the token that hides another.
    """
    from scipy.optimize import linear_sum_assignment

    hidden = (sheet.tokens == mask) & ~sheet.codes.isnan()
    sheet.certain[hidden] = False
    labels = torch.arange(len(counts)).repeat_interleave(counts)
    if not hidden.any() or not len(labels):
        return
    codes, shared = _shared(sheet, hidden)
    found, wanted = (codes - shared)[hidden].nan_to_num(1.0), tables.codes[labels]

    def matched(factor: Tensor) -> tuple[float, Any, Any]:
        off = (found[:, None] * factor - wanted).abs()
        rows, columns = linear_sum_assignment(off.numpy())
        return float(off[rows, columns].median()), rows, columns

    # some labels may have no place that was read: the factor is known but roughly
    factors = wanted.median() / found.median() * torch.linspace(-_ROUGH, _ROUGH, _TRIALS).exp()
    _, rows, columns = min((matched(one) for one in factors), key=lambda one: one[0])
    _, rows, columns = matched((wanted[columns] / found[rows]).median())
    written = torch.full_like(found, -1, dtype=torch.int64)
    written[rows] = labels[columns]
    sheet.tokens[hidden] = written


def _shared(sheet: Sheet, hidden: Tensor) -> tuple[Tensor, Tensor]:
    """Return codes without each block's factor, and those of unmasked tokens (batch, 1).

    The medians of each sequence in each block are a product of the two.
    """
    numbers = torch.unique(sheet.blocks[sheet.blocks >= 0])
    open_ = sheet.codes.where(~hidden, torch.nan)
    here = sheet.blocks[:, :, None] == numbers
    usual = open_[:, :, None].where(here, torch.nan).nanmedian(1).values  # (batch, blocks)
    table = usual.where(usual > 0, torch.nan).log()  # codes are positive, but for noise
    factors = torch.zeros(len(numbers))
    for _ in range(_ROUNDS):
        rows = (table - factors).nanmean(1, keepdim=True)
        factors = (table - rows).nanmedian(0).values.nan_to_num(0.0)
    each = factors[torch.searchsorted(numbers, sheet.blocks.clamp_min(int(numbers[0])))].exp()
    return sheet.codes / each, (open_ / each).nanmedian(1, keepdim=True).values


def fill_rest(sheet: Sheet, counts: Tensor) -> None:
    """Write the labels that stand nowhere yet into the places still empty, in any order.

    Args:
        sheet: written on; a place for which no word is left gets the commonest.
        counts: (vocabulary,), of each label.
    """
    empty = sheet.tokens < 0
    written = sheet.tokens[:, 1:]
    left = (counts - torch.bincount(written[written >= 0], minlength=len(counts))).clamp_min(0)
    rest = torch.arange(len(left)).repeat_interleave(left)
    sure = (
        len(left.nonzero()) == 1 and len(rest) == int(empty.sum()) and sheet.certain[~empty].all()
    )
    filler = int(counts.argmax())
    number = int(empty.sum())
    rest = torch.cat([rest, torch.full((number,), filler)])[:number]
    sheet.tokens[empty] = rest
    sheet.certain[empty] = bool(sure)
