"""Reading where nothing is exact: inputs with dropout, or gradients with noise."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmark.toolbox.text.readout import Pairs, Readings
from benchmark.toolbox.text.sequences import distances, groups
from submissions.attacks.decepticon.filling import Sheet
from submissions.attacks.decepticon.spelling import Tables, centred

_EXACT = 1e-3  # of the size of a vector's entries; what is nearer was not dropped
_HELD = 0.6  # share of entries that a sum must explain exactly: dropout leaves more
_ROUNDS = 8
_ALONE = 0.75  # share that one pair explains of a rung it has for itself: half of one with two
_SECOND = 0.1  # least share that a rung's second token explains


def spelled(vectors: Tensor, readings: Readings, tables: Tables) -> bool:
    """Tell whether most rungs hold one token's input, but for what dropout took from it.

    Dropout behind the activations takes the tokens above a threshold from each of its rows anew,
    so that neighbouring rows differ in dozens of them.

    Args:
        vectors: (rungs, width).
        readings: of them, hardly any of them exact: the best pair of each.
        tables: what the server knows.
    """
    held = steady(vectors[readings.rung], readings.position, readings.token, tables)[2]
    return float(held.median()) > _HELD


def guess(
    sheet: Sheet, vectors: Tensor, pairs: Pairs, tables: Tables, marks: Tensor | None = None
) -> None:
    """Write the best pair of each rung, sequence by sequence, positions by linear sum assignment.

    Places still empty then get the second tokens of rungs, explained by no first one. Only a lone
    sequence is certified: of several, whose a pair is remains a guess, however exact the pair.

    Args:
        sheet: written on.
        vectors: (rungs, width).
        pairs: of the tables.
        tables: what the server knows.
        marks: (sequences, marks), of the sheet's first sequences where known.
    """
    content = centred(vectors[:, tables.place.content])
    shares, tokens = pairs.scores(content)
    position = shares.argmax(1)
    token = tokens.gather(1, position[:, None])[:, 0]
    factor, shift, held = steady(vectors, position, token, tables)
    if len(sheet.tokens) == 1:
        sequence = torch.zeros_like(position)
    else:
        own = _marks(vectors, position, token, factor, shift, tables)
        if marks is None:
            marks = _founded(
                own, shares.amax(1), tables.visible(position).all(1), len(sheet.tokens)
            )
        sequence = distances(own, marks).argmin(1)
    sure = (held > _HELD) & (len(sheet.tokens) == 1)
    _assign(sheet, shares, tokens, sequence, tables, sure, position)
    first = pairs.sums(position, token)
    basis = (first / first.norm(dim=1, keepdim=True))[:, :, None]
    shares, tokens = pairs.scores(content, basis)
    nobody = torch.zeros_like(held, dtype=torch.bool)
    _assign(sheet, shares, tokens, sequence, tables, nobody, position, least=_SECOND)


def steady(
    vectors: Tensor, position: Tensor, token: Tensor, tables: Tables
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit factor and shift of each vector to its pair on the entries that agree with them.

    Dropout leaves the other entries untouched, so they agree to the last digits with the right
    pair; with a wrong one, hardly any does.

    Returns:
        factors (n,), shifts (n,) and the share of entries that agree (n,).
    """
    content = tables.place.content
    wanted = tables.inputs(position, token)[0][:, content]
    found = vectors[:, content]
    kept = torch.ones_like(found)
    for _ in range(_ROUNDS):
        number = kept.sum(1, keepdim=True)
        middle, centre = ((kept * rows).sum(1, keepdim=True) / number for rows in (wanted, found))
        off = kept * (wanted - middle)
        factor = (off * (found - centre)).sum(1, keepdim=True) / off.square().sum(1, keepdim=True)
        shift = centre - factor * middle
        miss = (found - factor * wanted - shift).abs()
        kept = (miss <= 2.5 * miss.median(1, keepdim=True).values).float()
    size = (factor * centred(wanted)).square().mean(1, keepdim=True).sqrt()
    return factor[:, 0], shift[:, 0], (miss < _EXACT * size).float().mean(1)


def _marks(
    vectors: Tensor,
    position: Tensor,
    token: Tensor,
    factor: Tensor,
    shift: Tensor,
    tables: Tables,
) -> Tensor:
    """Return each rung's marks (n, marks); nan where unseen or dropped, which tells nothing."""
    marks, inputs = tables.place.marks, tables.inputs(position, token)[0]
    own = (vectors[:, marks] - shift[:, None]) / factor[:, None] - inputs[:, marks]
    size = inputs[:, tables.place.content].square().mean().sqrt()
    seen = tables.visible(position) & (own.abs() > _EXACT * size)
    return own.where(seen, torch.nan)


def _founded(own: Tensor, explained: Tensor, full: Tensor, batch: int) -> Tensor:
    """Return the marks of sequences, (groups, marks), from rungs that hold all of one token.

    Those of two tokens would stand far from all others and be taken for a sequence's. Where noise
    leaves few that are surely one token's, the better half serves.
    """
    least = min(_ALONE, float(explained[full].median()))
    return groups(own[full & (explained >= least)], batch)


def _assign(
    sheet: Sheet,
    shares: Tensor,
    tokens: Tensor,
    sequence: Tensor,
    tables: Tables,
    sure: Tensor,
    best: Tensor,
    least: float = 0.0,
) -> None:
    """Write into each sequence's empty places the tokens that explain most in all.

    Args:
        sheet: written on.
        shares: (n, places), what each rung's best token at a position explains.
        tokens: (n, places), that token, by row of the tables.
        sequence: (n,).
        tables: what the server knows.
        sure: (n,) bool, the rungs whose pair is beyond doubt.
        best: (n,), their positions.
        least: share below which nothing is written.
    """
    from scipy.optimize import linear_sum_assignment

    for one in range(len(sheet.tokens)):
        lines = (sequence == one).nonzero()[:, 0]
        empty = (sheet.tokens[one, : shares.shape[1]] < 0).nonzero()[:, 0]
        gains = shares[lines][:, empty]
        rows, columns = linear_sum_assignment(-gains.numpy())
        kept = gains[rows, columns].numpy() > least
        line, place = lines[rows[kept]], empty[columns[kept]]
        sheet.tokens[one, place] = tables.words[tokens[line, place]]
        sheet.certain[one, place] = sure[line] & (best[line] == place)
