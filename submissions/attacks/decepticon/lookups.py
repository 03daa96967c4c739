"""Reading tokens from their own rows of the embedding's gradient, which dropout leaves readable.

Behind norms, the gradient at an input is a combination of this input, a constant and the
measurement, except in a few entries that the first attention reads. A token looked up once has it
in its row of the table, with zeros where its input was dropped. So its position is the one at which
least squares leave nothing, and then the marks of its sequence follow: whatever dropout does behind
the activations, where it takes the bins apart. A token looked up at two or three places has the
sum, fitted on the entries that none of them dropped.

Source: derived for this benchmark; not in Fowl et al. (ICLR 2023, Decepticons).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from submissions.attacks.decepticon.sequences import Choices
from submissions.attacks.decepticon.sheet import Sheet
from submissions.attacks.decepticon.tables import Tables
from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class TokenRow:
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
    """Tell whether inputs were dropped: rows of tokens looked up once or twice then hold zeros.

    So do rows that were rounded.
    """
    if tables.rounded:
        return False
    rows = update[tables.parts.token_embedding][tables.words]
    zeros = (rows[:, tables.layout.content] == 0).float().mean()
    return float(zeros) > CHOSEN.dropped_entries


def look_up(sheet: Sheet, update: Mapping[str, Tensor], tables: Tables) -> Sheet:
    """Return the tokens whose rows tell their places; sequences whose marks are told come first.

    A token is certified where it has one place, and three marks say whose it is.

    Args:
        sheet: empty.
        update: gradients by name.
        tables: what the server knows.
    """
    tokens, certain = sheet.tokens.clone(), sheet.certain.clone()
    found = read_rows(update, tables)
    marks, least = _shared_marks(found, tables, len(tokens))
    homeless = []
    for one in found:  # of one place first, which leave few to choose from to those of several
        owners, agreed = _owners(one, marks, least, tokens)
        if owners is None:
            homeless.append(one)
            continue
        tokens[owners, one.positions] = tables.words[one.token]
        sure = len(owners) == 1 and agreed >= CHOSEN.entries_agreed
        certain[owners, one.positions] = sure
    for one in homeless:  # in sequences without marks, if there are any
        for position in one.positions.tolist():
            free = (tokens[:, position] < 0).nonzero()[:, 0]
            if len(free):
                tokens[free[-1], position] = tables.words[one.token]
    return replace(sheet, tokens=tokens, certain=certain)


def read_rows(update: Mapping[str, Tensor], tables: Tables) -> list[TokenRow]:
    """Return the tokens whose rows are explained to the last digits by at most three places."""
    rows = update[tables.parts.token_embedding][tables.words].double()
    first = tables.parts.blocks[0].first.weight.of(tables.known)[0].double()
    first = first / first.square().mean().sqrt()
    width, found, left = tables.layout.width, list[TokenRow](), torch.arange(len(rows))
    for k in range(1, CHOSEN.most_places + 1):
        places = torch.combinations(torch.arange(len(tables.positions)), k)
        if len(places) > CHOSEN.most_fits:
            break
        size = max(1, CHOSEN.fit_cells // max(1, len(places) * width * (k + 2)))
        unread = [left[:0]]
        for part in torch.split(left, size):
            read, more = _explained(rows[part], tables, part, places, first)
            unread.append(part[~read])
            found += more
        left = torch.cat(unread)
    return found


def _explained(
    rows: Tensor, tables: Tables, words: Tensor, places: Tensor, first: Tensor
) -> tuple[Tensor, list[TokenRow]]:
    """Return which rows places explain (n,) bool, and what these then say; arguments as `_fit`."""
    k = places.shape[1]
    best, solution, share = _fit(rows, tables, words, places, first)
    read = share > (CHOSEN.row_whole if k == 1 else CHOSEN.row_held)
    inputs = tables.positions[places[best]] + tables.tokens[words][:, None]
    rest = rows - (solution[:, :k, None] * inputs).sum(1)
    rest -= solution[:, k, None] + solution[:, k + 1, None] * first
    marks = rest.where(rows != 0, torch.nan)[:, tables.layout.marks]
    found = [
        TokenRow(int(words[i]), places[best[i]], solution[i, :k].float(), marks[i].float())
        for i in read.nonzero()[:, 0].tolist()
    ]
    return read, found


def _fit(
    rows: Tensor, tables: Tables, words: Tensor, places: Tensor, first: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Fit rows by their tokens at each combination of places, on the entries that agree.

    Args:
        rows: (n, width).
        tables: what the server knows.
        words: (n,), the rows' tokens.
        places: (c, k).
        first: (width,), the measurement.

    Returns:
        The combination that explains most entries (n,), its factors, constant and share of the
        measurement (n, k + 2), and the share of entries explained (n,); 0 where it is chance.
    """
    usable, k = _usable(tables), places.shape[1]
    target, first = rows[:, None, usable], first[usable]
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
    for _ in range(CHOSEN.row_rounds):
        weighed = columns * kept[:, :, None]
        gram = weighed @ columns.mT
        gram += 1e-14 * gram.diagonal(dim1=2, dim2=3).mean(2)[..., None, None] * torch.eye(k + 2)
        solution = torch.linalg.solve(gram, (weighed @ target[..., None]))[..., 0]
        miss = ((solution[:, :, None] @ columns)[:, :, 0] - target).abs()
        exact = (miss < CHOSEN.row_exact * size) & (there > 0)
        if bool((exact.sum(2).amax(1) == there.sum(2)[:, 0]).all()):
            break
        middle = miss.where(there > 0, torch.nan).nanmedian(2, keepdim=True).values
        kept = there * (miss <= CHOSEN.row_outlier * middle)
    number, best = exact.sum(2).max(1)
    chance = number < k + 2 + CHOSEN.row_spare
    share = (number / there.sum(2)[:, 0]).masked_fill(chance, 0)
    return best, solution[torch.arange(len(rows)), best], share


def _usable(tables: Tables) -> Tensor:
    """Return the entries to fit, (width,) bool: content that no mark is copied from."""
    layout = tables.layout
    usable = torch.zeros(layout.width, dtype=torch.bool)
    usable[layout.content] = True
    usable[layout.free : layout.free + layout.share] = False
    return usable


def _shared_marks(found: list[TokenRow], tables: Tables, batch: int) -> tuple[Tensor, float]:
    """Return the marks that several tokens of one place share (groups, marks), and what is near.

    Entries with gradient of a key in them, whose softmax dropout left undecided, are like no other.
    """
    alone = [one for one in found if len(one.positions) == 1]
    if not alone:
        return torch.zeros(0, tables.layout.marks.stop), 0.0
    own = torch.stack([one.marks / one.factors for one in alone])
    usual = own.abs().nanmedian()
    seen = tables.visible(torch.cat([one.positions for one in alone]))
    own = own.where(seen & (own.abs() > CHOSEN.same * usual), torch.nan)  # dropped on their way
    least = CHOSEN.same * float(usual)
    near = ((own[:, None] - own).abs() < least).sum(2) >= CHOSEN.entries_agreed
    left, marks = torch.ones(len(own), dtype=torch.bool), [own[:0]]
    while len(marks) <= batch:
        votes = (near & left).sum(1) * left
        if int(votes.max()) < CHOSEN.group_votes:
            break
        members = near[votes.argmax()] & left
        marks.append(own[members].nanmedian(0, keepdim=True).values)
        left &= ~members
    return torch.cat(marks), least


def _owners(
    one: TokenRow, marks: Tensor, least: float, tokens: Tensor
) -> tuple[Tensor | None, int]:
    """Return the sequences of a token's places whose marks add up to its own.

    Each entry of a mark may be dropped on its way to any of the places.

    Args:
        one: the token.
        marks: (groups, marks).
        least: by how much an entry may be missed.
        tokens: (batch, length), what is read already.

    Returns:
        The sequences (k,), None where none or several fit best, and how many entries are the sum
        of marks none of which was dropped.
    """
    k = len(one.positions)
    choices = Choices((tokens[: len(marks), one.positions] < 0).T)
    if not choices.number:
        return None, 0
    tried = choices.at(torch.arange(choices.number))
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
