"""Reading tokens from their own rows of the embedding's gradient, which dropout leaves readable.

Behind norms, the gradient at an input is a combination of this input, a constant and the
measurement, except in a few entries that the first attention reads. A token looked up once has it
in its row of the table, with zeros where its input was dropped. So its position is the one at which
least squares leave nothing, and then the marks of its sequence follow: whatever dropout does behind
the activations, where it takes the ladder apart. A token looked up at two or three places has the
sum, fitted on the entries that none of them dropped.

Source: derived for this benchmark; not in Fowl et al. (ICLR 2023, Decepticons).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.toolbox.text.sequences import SAME
from submissions.attacks.decepticon.filling import Sheet
from submissions.attacks.decepticon.spelling import Tables

_DROPPED = 1e-3  # least share of entries
_EXACT = 1e-5  # of the size of a row's entries
_HELD = 0.5  # least share of entries explained so: three lookups leave 0.73 that none has dropped
_WHOLE = 0.99  # of a row that holds one lookup
_SPARE = 8  # entries explained beyond those that any fit explains
_MOST = 3  # places of one token
_SHARED = 3  # entries in which marks agree that found a group
_VOTES = 3  # tokens that agree
_FITS = 5000  # combinations of places that are tried
_ROUNDS = 10
_CELLS = 2**24  # numbers at a time


@dataclass(frozen=True)
class Lookup:
    """A token with its places, and what its row holds beyond it.

    Attributes:
        token: by row of the tables.
        positions: (k,) int64.
        factors: (k,), of each input.
        marks: (marks,), their sum over the places, each times its factor; nan where dropped.
    """

    token: int
    positions: Tensor
    factors: Tensor
    marks: Tensor


def dropped(update: Mapping[str, Tensor], tables: Tables) -> bool:
    """Tell whether inputs were dropped: rows of tokens looked up once or twice then hold zeros."""
    rows = update[tables.parts.token_embedding][tables.words]
    return float((rows[:, tables.place.content] == 0).float().mean()) > _DROPPED


def look_up(sheet: Sheet, update: Mapping[str, Tensor], tables: Tables) -> None:
    """Write the tokens whose rows tell their places.

    A token is certified where it has one place, and three marks say whose it is.

    Args:
        sheet: written on; sequences whose marks are told come first.
        update: gradients by name.
        tables: what the server knows.
    """
    found = lookups(update, tables)
    marks, least = _founded(found, tables, len(sheet.tokens))
    homeless = []
    for one in found:  # of one place first, which leave few to choose from to those of several
        owners, agreed = _owners(one, marks, least, sheet)
        if owners is None:
            homeless.append(one)
            continue
        sheet.tokens[owners, one.positions] = tables.words[one.token]
        sheet.certain[owners, one.positions] = len(owners) == 1 and agreed >= _SHARED
    for one in homeless:  # in sequences without marks, if there are any
        for position in one.positions.tolist():
            free = (sheet.tokens[:, position] < 0).nonzero()[:, 0]
            if len(free):
                sheet.tokens[free[-1], position] = tables.words[one.token]


def _founded(found: list[Lookup], tables: Tables, batch: int) -> tuple[Tensor, float]:
    """Return the marks that several tokens of one place share (groups, marks), and what is near.

    Entries with gradient of a key in them, whose softmax dropout left undecided, are like no other.
    """
    alone = [one for one in found if len(one.positions) == 1]
    if not alone:
        return torch.zeros(0, tables.place.marks.stop), 0.0
    own = torch.stack([one.marks / one.factors for one in alone])
    usual = own.abs().nanmedian()
    seen = tables.visible(torch.cat([one.positions for one in alone]))
    own = own.where(seen & (own.abs() > SAME * usual), torch.nan)  # dropped on their way here
    least = SAME * float(usual)
    near = ((own[:, None] - own).abs() < least).sum(2) >= _SHARED
    left, marks = torch.ones(len(own), dtype=torch.bool), [own[:0]]
    while len(marks) <= batch:
        votes = (near & left).sum(1) * left
        if int(votes.max()) < _VOTES:
            break
        members = near[votes.argmax()] & left
        marks.append(own[members].nanmedian(0, keepdim=True).values)
        left &= ~members
    return torch.cat(marks), least


def lookups(update: Mapping[str, Tensor], tables: Tables) -> list[Lookup]:
    """Return the tokens whose rows are explained to the last digits by at most three places."""
    place, parts = tables.place, tables.parts
    rows = update[parts.token_embedding][tables.words].double()
    first = parts.blocks[0].first.weight.of(tables.known)[0].double()
    first /= first.square().mean().sqrt()
    usable = torch.zeros(place.width, dtype=torch.bool)
    usable[place.content] = True
    usable[place.free : place.free + place.share] = False  # what the marks are copied from
    found, left = [], torch.arange(len(rows))
    for k in range(1, _MOST + 1):
        places = torch.combinations(torch.arange(len(tables.positions)), k)
        if len(places) > _FITS:
            break
        size = max(1, _CELLS // max(1, len(places) * place.width * (k + 2)))
        unread = [left[:0]]
        for part in torch.split(left, size):
            best, solution, share = _fit(rows[part], tables, part, places, first, usable)
            inputs = tables.positions[places[best]] + tables.tokens[part][:, None]
            rest = rows[part] - (solution[:, :k, None] * inputs).sum(1)
            rest -= solution[:, k, None] + solution[:, k + 1, None] * first
            marks = rest.where(rows[part] != 0, torch.nan)[:, place.marks]
            read = share > (_WHOLE if k == 1 else _HELD)
            unread.append(part[~read])
            found += [
                Lookup(int(part[i]), places[best[i]], solution[i, :k].float(), marks[i].float())
                for i in read.nonzero()[:, 0].tolist()
            ]
        left = torch.cat(unread)
    return found


def _fit(
    rows: Tensor, tables: Tables, words: Tensor, places: Tensor, first: Tensor, usable: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit rows by their tokens at each combination of places, on the entries that agree.

    Args:
        rows: (n, width).
        tables: what the server knows.
        words: (n,), the rows' tokens.
        places: (c, k).
        first: (width,), the measurement.
        usable: (width,) bool.

    Returns:
        The combination that explains most entries (n,), its factors, constant and share of the
        measurement (n, k + 2), and the share of entries explained (n,); 0 where it is chance.
    """
    target, first = rows[:, None, usable], first[usable]
    k = places.shape[1]
    inputs = (
        tables.positions.double()[places][..., usable]
        + tables.tokens[words].double()[:, None, None, usable]
    )
    columns = torch.cat(
        [inputs, torch.ones_like(inputs[:, :, :1]), first.expand_as(inputs[:, :, :1])], 2
    )
    there = (target != 0).double()  # (n, 1, entries)
    kept = there.expand(-1, len(places), -1)
    size = (target.square().sum(2, keepdim=True) / there.sum(2, keepdim=True)).sqrt()
    for _ in range(_ROUNDS):
        weighed = columns * kept[:, :, None]
        gram = weighed @ columns.mT
        gram += 1e-14 * gram.diagonal(dim1=2, dim2=3).mean(2)[..., None, None] * torch.eye(k + 2)
        solution = torch.linalg.solve(gram, (weighed @ target[..., None]))[..., 0]
        miss = ((solution[:, :, None] @ columns)[:, :, 0] - target).abs()
        exact = (miss < _EXACT * size) & (there > 0)
        if bool((exact.sum(2).amax(1) == there.sum(2)[:, 0]).all()):
            break
        middle = miss.where(there > 0, torch.nan).nanmedian(2, keepdim=True).values
        kept = there * (miss <= 2 * middle)
    number, best = exact.sum(2).max(1)
    chance = number < k + 2 + _SPARE
    share = (number / there.sum(2)[:, 0]).masked_fill(chance, 0)
    return best, solution[torch.arange(len(rows)), best], share


def _owners(one: Lookup, marks: Tensor, least: float, sheet: Sheet) -> tuple[Tensor | None, int]:
    """Return the sequences of a token's places whose marks add up to its own.

    Each entry of a mark may be dropped on its way to any of the places.

    Returns:
        The sequences (k,), None where none or several fit best, and how many entries are the sum
        of marks none of which was dropped.
    """
    k = len(one.positions)
    free = (sheet.tokens[: len(marks), one.positions] < 0).T
    choices = [row.nonzero()[:, 0] for row in free]
    if not all(len(choice) for choice in choices):
        return None, 0
    tried = torch.cartesian_prod(*choices).view(-1, k)
    came = torch.cartesian_prod(*[torch.tensor([1.0, 0.0])] * k).view(-1, k)
    sums = torch.einsum("dk,tke->tde", came, one.factors[:, None] * marks[tried])
    off = (sums - one.marks).abs() / one.factors.abs().sum()
    fits = off < least  # (tried, dropped, entries); nan does not
    whole, score = fits[:, 0].sum(1), fits.any(1).sum(1)
    score = len(one.marks) * score + whole  # a mark that came says more than one that may not have
    best = int(score.argmax())
    if int(score[best]) == 0 or int((score == score[best]).sum()) > 1:
        return None, 0
    return tried[best], int(whole[best])
