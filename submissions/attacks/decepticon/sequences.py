"""Which tokens belong to one sequence: those with the same marks.

A sequence's marks are a function of its first tokens, so sequences that begin alike for as many
tokens as there are anchors make one group. Within a group, each token names its successor: the code
of its label stands in its gradient.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from submissions.attacks.decepticon.thresholds import CHOSEN


def size_of(marks: Tensor) -> float:
    """Return how much marks (n, entries) vary, an entry; nan is an entry that is not known."""
    return float((marks - marks.nanmean(0)).square().nanmean().sqrt())


def distances(one: Tensor, other: Tensor) -> Tensor:
    """Return root mean squares (n, m) over the entries that both have.

    Args:
        one: (n, entries), nan where an entry is not known.
        other: (m, entries), likewise.

    Returns:
        Infinite where they share no entry.
    """
    have, has = (~one.isnan()).double(), (~other.isnan()).double()  # squares cancel in float32
    a, b = one.nan_to_num().double(), other.nan_to_num().double()
    squares = a.square() @ has.T + have @ b.square().T - 2 * a @ b.T
    return (squares.clamp_min(0) / (have @ has.T)).sqrt().nan_to_num(torch.inf).float()


def groups(marks: Tensor, batch: int) -> Tensor:
    """Return the distinct marks, (groups, entries), at most as many as there are sequences.

    The marks farthest from all chosen ones are chosen next. Where `batch` of them leave some
    unexplained, clusters of about equal size are grown from them.

    Args:
        marks: (n, entries), nan where an entry is not known.
        batch: number of sequences.
    """
    if batch == 1:
        return marks.nanmedian(0).values[None]
    least = CHOSEN.same * size_of(marks)
    # marks that few others have are those of equal tokens of two sequences on one bin
    alike = (distances(marks, marks) < least).sum(1)
    usual = marks[alike > CHOSEN.few_alike * len(marks) / batch]
    if len(usual) >= max(batch, len(marks) / 2):  # under noise hardly any are alike
        marks = usual
    chosen, distance = [0], distances(marks, marks[:1])[:, 0]
    while len(chosen) < batch and float(distance.max()) > least:
        chosen.append(int(distance.argmax()))
        distance = distance.minimum(distances(marks, marks[chosen[-1:]])[:, 0])
    if float(distance.max()) > least:
        return _equal_sizes(marks, marks[chosen])
    nearest = distances(marks, marks[chosen]).argmin(1)
    return torch.stack([marks[nearest == i].nanmedian(0).values for i in range(len(chosen))])


def _equal_sizes(marks: Tensor, start: Tensor) -> Tensor:
    """Return the means of clusters of at most about equal size (Bradley et al., 2000)."""
    from k_means_constrained import KMeansConstrained  # type: ignore[import-untyped]

    usual = marks.nanmean(0)
    marks, start = (torch.where(rows.isnan(), usual, rows).double() for rows in (marks, start))
    most = -(-len(marks) * 5 // (len(start) * 4))  # tokens are lost unevenly
    clusters = KMeansConstrained(
        len(start), size_max=min(most, len(marks)), init=start.numpy(), n_init=1, max_iter=20
    )
    clusters.fit(marks.numpy())
    return torch.from_numpy(clusters.cluster_centers_).float()


class Choices:
    """All ways to give each of k tokens one of the groups that it is allowed.

    Args:
        allowed: (k, groups) bool.
    """

    def __init__(self, allowed: Tensor) -> None:
        self.each = [row.nonzero()[:, 0] for row in allowed]
        self.number = math.prod(len(one) for one in self.each)

    def at(self, index: Tensor) -> Tensor:
        """Return groups (n, k) by index (n,); the last token's group runs fastest."""
        columns = []
        for one in reversed(self.each):
            columns.append(one[index % len(one)])
            index = index // len(one)
        return torch.stack(columns[::-1], 1)


def combinations(
    marks: Tensor, weights: Tensor, known: Tensor, allowed: Tensor, least: float
) -> tuple[Tensor, Tensor]:
    """Return all groups whose weighted marks add up to those of a bin with k tokens.

    Args:
        marks: (entries,), of the bin.
        weights: (k,), of each token in them.
        known: (k, groups, entries), the marks of each token if it were of a group.
        allowed: (k, groups) bool, where a token may belong.
        least: root mean square by which the sum may be missed, a unit of weight.

    Returns:
        Groups (n, k), best first, and what each misses (n,), of what it may. None where too many
        would have to be tried.
    """
    choices = Choices(allowed)
    if not 0 < choices.number <= CHOSEN.most_choices:
        return torch.zeros(0, len(allowed), dtype=torch.int64), marks[:0]
    *others, last = [
        weight * own[one] for weight, own, one in zip(weights, known, choices.each, strict=True)
    ]
    left = marks[None]
    for part in others:  # in the order of the choices
        left = (left[:, None] - part).flatten(0, 1)
    limit = least * float(weights.abs().sum()) * len(marks) ** 0.5
    off = torch.cdist(left, last, compute_mode="donot_use_mm_for_euclid_dist").flatten() / limit
    fits = (off < 1).nonzero()[:, 0]
    fits = fits[off[fits].argsort()]
    return choices.at(fits), off[fits]


def chain(
    positions: Tensor, codes: Tensor, labels: Tensor, sequences: int, miss: float
) -> tuple[Tensor, Tensor]:
    """Share the tokens of one group out to its sequences, each token after the one that names it.

    Args:
        positions: (n,), in which tokens stand.
        codes: (n,), of each token.
        labels: (n,), code of each token's successor; nan where unknown.
        sequences: in the group.
        miss: by which a label read may be off.

    Returns:
        The sequence of each token (n,) int64, -1 where a position has more than there are; and
        (n,) bool, whether it hangs on an unbroken chain, in which each fits one sequence alone.
    """
    from scipy.optimize import linear_sum_assignment

    owners = torch.full((len(positions),), -1)
    whole = torch.ones(sequences, dtype=torch.bool)
    named = torch.full((sequences,), torch.nan)
    begun, last = False, -1
    for position in torch.unique(positions).tolist():  # ascending
        here = (positions == position).nonzero()[:, 0]
        if position != last + 1:
            named[:] = torch.nan
        off = (codes[here][:, None] - named).abs()
        # a sequence of which nothing is known may have any token, but a known one goes first
        rows, columns = linear_sum_assignment(off.nan_to_num(1.0).numpy())
        owners[here[rows]] = torch.from_numpy(columns)
        if begun:
            near = off < miss  # nan is not
            only = near & (near.sum(0) == 1) & (near.sum(1, keepdim=True) == 1)
            held = torch.zeros(sequences, dtype=torch.bool)
            held[columns] = only[rows, columns]
            whole &= held
        # until they differ, which is whose is all the same
        begun |= len(torch.unique(codes[here])) > 1 or len(here) < sequences
        named = torch.full((sequences,), torch.nan)
        named[columns] = labels[here[rows]]
        last = position
    return owners, whole[owners]  # a break leaves two parts, of which either may be elsewhere
