"""Reading where nothing is exact: inputs with dropout, or gradients with noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from submissions.attacks.decepticon.bins import Bins
from submissions.attacks.decepticon.pairs import Pairs, Scores
from submissions.attacks.decepticon.sequences import distances, groups
from submissions.attacks.decepticon.sheet import Sheet
from submissions.attacks.decepticon.tables import Tables, centred
from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class BestPairs:
    """Each bin's best pair, fitted on the entries that agree with it.

    Dropout leaves the other entries untouched, so they agree to the last digits with the right
    pair; with a wrong one, hardly any does.

    Attributes:
        bins: what they hold.
        scores: of all pairs.
        position: (bins,) int64, the best pair's.
        token: (bins,) int64, the best pair's, by row of the tables.
        factor: (bins,), of the pair's input in the vector.
        shift: (bins,), of all entries.
        held: (bins,), share of entries that agree to the last digits.
    """

    bins: Bins
    scores: Scores
    position: Tensor
    token: Tensor
    factor: Tensor
    shift: Tensor
    held: Tensor

    @staticmethod
    def of(bins: Bins, scores: Scores, tables: Tables) -> BestPairs:
        """Fit the best pair of each bin."""
        content = tables.layout.content
        position, token = scores.best()
        wanted, found = tables.inputs(position, token)[0][:, content], bins.vectors[:, content]
        return BestPairs(bins, scores, position, token, *_fit(found, wanted))

    @property
    def spelled(self) -> bool:
        """Whether most bins hold one token's input, but for what dropout took from it.

        Dropout behind the activations takes the tokens above an edge from each of its rows anew,
        so that neighbouring rows differ in dozens of them.
        """
        return float(self.held.median()) > CHOSEN.held_entries

    def marks(self, tables: Tables) -> Tensor:
        """Return each bin's marks (bins, marks); nan where unseen or dropped."""
        layout, inputs = tables.layout, tables.inputs(self.position, self.token)[0]
        own = (self.bins.vectors[:, layout.marks] - self.shift[:, None]) / self.factor[:, None]
        own = own - inputs[:, layout.marks]
        size = inputs[:, layout.content].square().mean().sqrt()
        seen = tables.visible(self.position) & (own.abs() > CHOSEN.not_dropped * size)
        return own.where(seen, torch.nan)


def _fit(found: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return factor and shift of each row wanted in the one found, and the share that agrees.

    Args:
        found: (n, entries).
        wanted: (n, entries).
    """
    kept = torch.ones_like(found)
    for _ in range(CHOSEN.fit_rounds):
        number = kept.sum(1, keepdim=True)
        middle, centre = ((kept * rows).sum(1, keepdim=True) / number for rows in (wanted, found))
        off = kept * (wanted - middle)
        factor = (off * (found - centre)).sum(1, keepdim=True) / off.square().sum(1, keepdim=True)
        shift = centre - factor * middle
        miss = (found - factor * wanted - shift).abs()
        kept = (miss <= CHOSEN.fit_outlier * miss.median(1, keepdim=True).values).float()
    size = (factor * centred(wanted)).square().mean(1, keepdim=True).sqrt()
    held = (miss < CHOSEN.not_dropped * size).float().mean(1)
    return factor[:, 0], shift[:, 0], held


def guess(
    sheet: Sheet, best: BestPairs, pairs: Pairs, tables: Tables, marks: Tensor | None = None
) -> Sheet:
    """Return the best pair of each bin in place, sequence by sequence.

    Places still empty then get the second tokens of bins, explained by no first one. Only a lone
    sequence is certified: of several, whose a pair is remains a guess, however exact the pair.

    Args:
        sheet: what is read already.
        best: of the bins.
        pairs: of the tables.
        tables: what the server knows.
        marks: (sequences, marks), of the sheet's first sequences where known.
    """
    if len(sheet.tokens) == 1:
        sequence, sure = torch.zeros_like(best.position), best.held > CHOSEN.held_entries
    else:
        own = best.marks(tables)
        if marks is None:
            marks = _group_marks(own, best, tables, len(sheet.tokens))
        sequence = distances(own, marks).argmin(1)
        sure = torch.zeros_like(best.position, dtype=torch.bool)
    everywhere = torch.arange(len(tables.positions))
    certain = sure[:, None] & (best.position[:, None] == everywhere)
    sheet = _assign(sheet, best.scores, sequence, certain, tables, least=0.0)
    first = pairs.sums(best.position, best.token)
    basis = (first / first.norm(dim=1, keepdim=True))[:, :, None]
    scores = pairs.scores(best.bins.content, basis)
    nowhere = torch.zeros_like(certain)
    return _assign(sheet, scores, sequence, nowhere, tables, least=CHOSEN.second_share)


def _group_marks(own: Tensor, best: BestPairs, tables: Tables, batch: int) -> Tensor:
    """Return the marks of sequences, (groups, marks), from bins that hold all of one token.

    Those of two tokens would stand far from all others and be taken for a sequence's. Where noise
    leaves few that are surely one token's, the better half serves.

    Args:
        own: (bins, marks).
        best: of the bins.
        tables: what the server knows.
        batch: number of sequences.
    """
    explained, full = best.scores.share.amax(1), tables.visible(best.position).all(1)
    least = min(CHOSEN.alone_share, float(explained[full].median()))
    return groups(own[full & (explained >= least)], batch)


def _assign(
    sheet: Sheet, scores: Scores, sequence: Tensor, certain: Tensor, tables: Tables, least: float
) -> Sheet:
    """Return a sheet with those tokens in each sequence's empty places that explain most in all.

    Args:
        sheet: what is read already.
        scores: of n bins.
        sequence: (n,).
        certain: (n, places) bool, whether a bin's token there is beyond doubt.
        tables: what the server knows.
        least: share below which nothing is written.
    """
    from scipy.optimize import linear_sum_assignment

    tokens, sure = sheet.tokens.clone(), sheet.certain.clone()
    for one in range(len(tokens)):
        lines = (sequence == one).nonzero()[:, 0]
        empty = (tokens[one, : scores.share.shape[1]] < 0).nonzero()[:, 0]
        gains = scores.share[lines][:, empty]
        rows, columns = linear_sum_assignment(-gains.numpy())
        kept = gains[rows, columns].numpy() > least
        line, place = lines[rows[kept]], empty[columns[kept]]
        tokens[one, place] = tables.words[scores.token[line, place]]
        sure[one, place] = certain[line, place]
    return replace(sheet, tokens=tokens, certain=sure)
