"""What stands where no bin was read: the label of the token before, marks, words left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from submissions.attacks.decepticon.sheet import Sheet
from submissions.attacks.decepticon.tables import Tables, above_noise
from submissions.attacks.decepticon.thresholds import CHOSEN


def count_labels(update: Mapping[str, Tensor], tables: Tables, sheet: Sheet) -> Tensor:
    """Return how often each token is a label, (vocabulary,) int64.

    All probability is the decoy's, so the gradient of any other token's logit is its frequency.

    Args:
        update: gradients by name.
        tables: what the server knows.
        sheet: what is read. A masked model has as many labels at least as masks; the rarest counts
            once.
    """
    parts = tables.parts
    if parts.decoder.bias is not None:
        shares = -parts.decoder.bias.of(update)
    else:
        shares = -parts.decoder.weight.of(update)[:, 0]
    shares = shares.clone()
    shares[-1] = 0
    least = above_noise(shares) if tables.noised else float(shares.max()) * CHOSEN.rounding
    shares[shares < least] = 0
    if not shares.any():
        return torch.zeros_like(shares, dtype=torch.int64)
    if tables.mask is None:
        unit = float(shares.sum()) / sheet.tokens[:, 1:].numel()
    else:
        masks = max(1, int((sheet.tokens == tables.mask).sum()))
        unit = min(float(shares.sum()) / masks, float(shares[shares > 0].min()))
    return (shares / unit).round().long()


def fill_anchors(sheet: Sheet, whole: Tensor, tables: Tables) -> Sheet:
    """Return a sheet with missing first tokens, which stand in the marks of all that follow.

    Args:
        sheet: what is read.
        whole: (sequences, marks), of the first ones on the sheet.
        tables: what the server knows.
    """
    tokens, certain, share = sheet.tokens.clone(), sheet.certain.clone(), tables.layout.share
    for i, anchor in enumerate(tables.layout.anchors):
        if anchor >= len(tables.positions) or len(tables.words) < 2:
            break  # one word is everywhere
        missing = (tokens[: len(whole), anchor] < 0).nonzero()[:, 0]
        known = tables.anchor_marks(anchor)
        marks = whole[missing, i * share : (i + 1) * share]
        off = torch.cdist(marks, known, compute_mode="donot_use_mm_for_euclid_dist")
        nearest, second = off.topk(2, dim=1, largest=False).values.T
        near = nearest < CHOSEN.same * float(known.std())
        # a head may have chosen a neighbour of the anchor, whose position is nearly the same
        same = nearest < CHOSEN.exact * float(known.std())
        tokens[missing, anchor] = torch.where(near, tables.words[off.argmin(1)], -1)
        certain[missing, anchor] = same & (nearest * CHOSEN.clear < second)
    return replace(sheet, tokens=tokens, certain=certain)


def fill_labels(sheet: Sheet, counts: Tensor, tables: Tables) -> Sheet:
    """Return a sheet with missing tokens that the place before names, by a code in its gradient.

    Where the codes of labels known already are missed (dropout on the way of the gradient),
    nothing is added.

    Args:
        sheet: what is read.
        counts: (vocabulary,), of each label.
        tables: what the server knows.
    """
    if tables.mask is not None:
        return fill_masked(sheet, counts, tables)
    tokens, certain, usual = sheet.tokens.clone(), sheet.certain.clone(), sheet.miss(tables.codes)
    found, nexts = sheet.codes[:, :-1], tokens[:, 1:]
    left = counts - torch.bincount(nexts[nexts >= 0], minlength=len(counts))
    candidates = (left > 0).nonzero()[:, 0]
    missing = ~found.isnan() & (nexts < 0)
    if usual > CHOSEN.agree or not len(candidates) or not missing.any():
        return sheet
    off = (found[missing][:, None] - tables.codes[candidates]).abs()
    order = off.topk(min(2, len(candidates)), dim=1, largest=False)
    near = order.values[:, 0] < CHOSEN.clear * usual
    clear = (order.values[:, -1] > 2 * CHOSEN.clear * usual) | (len(candidates) == 1)
    nexts[missing] = torch.where(near, candidates[order.indices[:, 0]], -1)
    # of noise a bin has more or less than those by which the miss is known
    sure = certain[:, :-1][missing] & (not tables.noised)
    certain[:, 1:][missing] = near & clear & sure
    return replace(sheet, tokens=tokens, certain=certain)


def fill_masked(sheet: Sheet, counts: Tensor, tables: Tables) -> Sheet:
    """Return a sheet with labels over the mask, by linear sum assignment of codes.

    A masked model's last attention gives all tokens of a sequence the same gradient; what a masked
    one has beyond it is its label's code.

    Args:
        sheet: what is read.
        counts: (vocabulary,), of each label.
        tables: what the server knows.
    """
    hidden = (sheet.tokens == tables.mask) & ~sheet.codes.isnan()
    sheet = replace(sheet, certain=sheet.certain & ~hidden)
    labels = torch.arange(len(counts)).repeat_interleave(counts)
    if not hidden.any() or not len(labels):
        return sheet
    codes, shared = _shared(sheet, hidden)
    found, wanted = (codes - shared)[hidden].nan_to_num(1.0), tables.codes[labels]
    rows, columns = _match(found, wanted)
    written = torch.full_like(found, -1, dtype=torch.int64)
    written[rows] = labels[columns]
    return replace(sheet, tokens=sheet.tokens.masked_scatter(hidden, written))


def _match(found: Tensor, wanted: Tensor) -> tuple[Any, Any]:
    """Return which codes found (n,) are which of those wanted (m,), but for a common factor."""
    from scipy.optimize import linear_sum_assignment

    def matched(factor: Tensor) -> tuple[float, Any, Any]:
        off = (found[:, None] * factor - wanted).abs()
        rows, columns = linear_sum_assignment(off.numpy())
        return float(off[rows, columns].median()), rows, columns

    # some labels may have no place that was read: the factor is known but roughly
    rough = torch.linspace(-CHOSEN.factor_range, CHOSEN.factor_range, CHOSEN.factors_tried).exp()
    factors = wanted.median() / found.median() * rough
    _, rows, columns = min((matched(one) for one in factors), key=lambda one: one[0])
    _, rows, columns = matched((wanted[columns] / found[rows]).median())
    return rows, columns


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
    for _ in range(CHOSEN.factor_rounds):
        rows = (table - factors).nanmean(1, keepdim=True)
        factors = (table - rows).nanmedian(0).values.nan_to_num(0.0)
    each = factors[torch.searchsorted(numbers, sheet.blocks.clamp_min(int(numbers[0])))].exp()
    return sheet.codes / each, (open_ / each).nanmedian(1, keepdim=True).values


def fill_rest(sheet: Sheet, counts: Tensor, tables: Tables) -> Sheet:
    """Return a sheet with the labels that stand nowhere yet in the empty places, in any order.

    A mask whose label was not read is empty; where no word is left stands the commonest.

    Args:
        sheet: what is read.
        counts: (vocabulary,), of each label.
        tables: what the server knows.
    """
    tokens, certain = sheet.tokens.clone(), sheet.certain.clone()
    if tables.mask is not None:
        tokens[tokens == tables.mask] = -1
    empty, nexts = tokens < 0, tokens[:, 1:]
    left = (counts - torch.bincount(nexts[nexts >= 0], minlength=len(counts))).clamp_min(0)
    rest, number = torch.arange(len(left)).repeat_interleave(left), int(empty.sum())
    sure = len(left.nonzero()) == 1 and len(rest) == number and bool(certain[~empty].all())
    commonest = torch.full((number,), int(counts.argmax()))
    tokens[empty] = torch.cat([rest, commonest])[:number]
    certain[empty] = sure
    return replace(sheet, tokens=tokens, certain=certain)
