"""Which tokens belong to one sequence: those with the same marks.

A sequence's marks are a function of its first tokens, so sequences that begin alike for as many
tokens as there are anchors make one group. Within a group, each token names its successor: the code
of its label stands in its gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

SAME = 1e-2
"""Marks nearer than this, in sizes of all marks, are one group's."""
_FEW = 0.15  # of a sequence's tokens
_COMBINATIONS = 2**18  # of groups that the tokens of a rung may belong to


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
    least = SAME * size_of(marks)
    # marks that few others have are those of equal tokens of two sequences on one rung
    alike = (distances(marks, marks) < least).sum(1)
    usual = marks[alike > _FEW * len(marks) / batch]
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


def combination(
    marks: Tensor, weights: Tensor, known: Tensor, allowed: Tensor, least: float
) -> Tensor | None:
    """Return the groups (k,) whose weighted marks add up to those of a rung with k tokens.

    Args:
        marks: (entries,), of the rung.
        weights: (k,), of each token in them.
        known: (groups, entries).
        allowed: (k, groups) bool, where a token may belong.
        least: root mean square by which the sum may be missed, a unit of weight.

    Returns:
        None where none fits, or too many would have to be tried.
    """
    choices = [row.nonzero()[:, 0] for row in allowed]
    number = 1
    for choice in choices:
        number *= len(choice)
    if not 0 < number <= _COMBINATIONS:
        return None
    tried = torch.cartesian_prod(*choices).view(number, -1)
    off = ((weights[:, None] * known[tried]).sum(1) - marks).square().mean(1).sqrt()
    best = int(off.argmin())
    return tried[best] if float(off[best]) < least * float(weights.abs().sum()) else None


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
        (n,) bool, whether it hangs on an unbroken chain.
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
        together = (
            len(torch.unique(codes[here])) == 1 and len(here) == sequences
        )  # all read the same
        if begun and not together:
            held = torch.zeros(sequences, dtype=torch.bool)
            held[columns] = off[rows, columns] < miss
            whole &= held
        begun |= not together
        named = torch.full((sequences,), torch.nan)
        named[columns] = labels[here[rows]]
        last = position
    return owners, whole[owners]  # a break leaves two parts, of which either may be elsewhere
