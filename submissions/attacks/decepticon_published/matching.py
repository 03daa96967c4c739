"""Sequences, positions and tokens of breached embeddings: algorithm 1, lines 5 to 11."""

from __future__ import annotations

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor


def clusters(marks: Tensor, batch: int, length: int, seed: int) -> Tensor:
    """Return the sequence of each embedding, (n,) int64, by constrained k-means.

    Args:
        marks: (n, entries), the reserved entries.
        batch: number of sequences.
        length: most that a sequence can have.
        seed: of the first centres.
    """
    if batch == 1 or len(marks) <= batch:
        return torch.arange(len(marks)) % batch
    from k_means_constrained import KMeansConstrained  # type: ignore[import-untyped]

    most = max(length, -(-len(marks) // batch))
    search = KMeansConstrained(batch, size_max=most, random_state=seed)
    return torch.from_numpy(search.fit_predict(marks.double().numpy())).long()


def correlations(one: Tensor, other: Tensor) -> Tensor:
    """Return Pearson's correlations (n, m) of rows (n, any) and (m, any), 0 of a constant row."""
    return _normed(one) @ _normed(other).T


def placed(scores: Tensor, places: int) -> tuple[Tensor, Tensor]:
    """Return which embedding stands where, (places,) int64, and where it was assigned, not filled.

    A linear sum assignment gives each embedding of a sequence a position of its own; positions
    that are left are given the embedding that fits best, used though it is.

    Args:
        scores: (n, all places), correlations of embeddings and positions, n >= 1.
        places: the first that send gradient.
    """
    rows, columns = linear_sum_assignment(scores[:, :places].numpy(), maximize=True)
    owner, own = scores.argmax(0), torch.zeros(scores.shape[1], dtype=torch.bool)
    owner[columns] = torch.from_numpy(rows)
    own[columns] = True
    return owner, own


def named(vectors: Tensor, positions: Tensor, tokens: Tensor) -> Tensor:
    """Return which token each embedding is, (n,) int64, each token used once; -1 for want of any.

    Args:
        vectors: (n, entries).
        positions: (n, entries), at which they stand; what a vector shares with it is taken off.
        tokens: (m, entries), a row for each time that a token occurs.
    """
    position = _normed(positions)
    centred = vectors - vectors.mean(1, keepdim=True)
    left = centred - (centred * position).sum(1, keepdim=True) * position
    rows, columns = linear_sum_assignment(correlations(left, tokens).numpy(), maximize=True)
    found = torch.full((len(vectors),), -1)
    found[torch.from_numpy(rows)] = torch.from_numpy(columns)
    return found


def _normed(rows: Tensor) -> Tensor:
    centred = rows - rows.mean(1, keepdim=True)
    return centred / centred.norm(dim=1, keepdim=True).clamp_min(torch.finfo(rows.dtype).tiny)
