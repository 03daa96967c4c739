"""Bins under noise: few rows of a gradient differ from the next by more than the noise.

The rows of an imprinted layer's gradient are a cumulative sum with as many jumps as tokens, so
noise on each row averages out between jumps. Source: Fowl et al. (ICLR 2023, Decepticons, appendix
G), who find each column's jumps by orthogonal matching pursuit; here one pursuit serves all
columns, which jump together, by binary segmentation (Scott and Knott, Biometrics 1974), and jumps
are kept where they rise above the noise.
"""

from __future__ import annotations

import heapq

import torch
from torch import Tensor

from submissions.attacks.decepticon.thresholds import CHOSEN


def noise_of(rows: Tensor) -> float:
    """Return the standard deviation of the noise on each entry of rows (rows, width).

    Most neighbouring rows are equal but for noise; the median is theirs.
    """
    return float((rows[1:] - rows[:-1]).abs().median()) / (0.6745 * 2**0.5)


def jumps(rows: Tensor, expected: int) -> tuple[Tensor, Tensor]:
    """Find where rows change and by what.

    Args:
        rows: (rows, width), a cumulative sum with noise.
        expected: number of jumps, about.

    Returns:
        Last rows before the change (n,) int64, ascending, and what is lost there (n, width).
    """
    edges = _pursue(rows, expected)
    noise = noise_of(rows)
    sums = torch.cat([torch.zeros_like(rows[:1]), rows.cumsum(0)])
    while len(edges):
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64), edges + 1])
        ends = torch.cat([bounds[1:], torch.tensor([len(rows)])])
        sizes = (ends - bounds).float()
        means = (sums[ends] - sums[bounds]) / sizes.clamp_min(1)[:, None]
        lost = means[:-1] - means[1:]
        alone = noise**2 * rows.shape[1] * (1 / sizes[:-1] + 1 / sizes[1:].clamp_min(1))
        ratio = lost.square().sum(1) / alone.clamp_min(torch.finfo(rows.dtype).tiny)
        if float(ratio.min()) > CHOSEN.jump_square:
            return edges, lost
        edges = torch.cat([edges[: int(ratio.argmin())], edges[int(ratio.argmin()) + 1 :]])
    return edges, rows[:0]


def _pursue(rows: Tensor, expected: int) -> Tensor:
    """Return candidate edges: the splits that explain most, each then moved to where it does best.

    The best fit of a segment is its mean, so that a new split changes nothing beside its own
    segment, and a pursuit costs no more than a few passes over the rows.
    """
    sought = min(int(CHOSEN.jumps_sought * expected) + 2, len(rows) // 2)
    # as many columns as the vectors below the jumps can span hold all but noise
    axes = torch.linalg.eigh(rows.T.double() @ rows.double()).eigenvectors
    rows = rows.double() @ axes[:, -min(2 * expected + 2, rows.shape[1]) :]
    sums = torch.cat([torch.zeros_like(rows[:1]), rows.cumsum(0)])
    segments, bounds = [_split(sums, 0, len(rows))], [0, len(rows)]
    while len(bounds) < sought + 2 and segments[0][0] < 0:
        _, at, start, end = heapq.heappop(segments)
        bounds.append(at)
        for half in ((start, at), (at, end)):
            heapq.heappush(segments, _split(sums, *half))
    bounds.sort()
    for _ in range(CHOSEN.jump_sweeps):  # the first splits were made while all others were missing
        for i in range(1, len(bounds) - 1):
            bounds[i] = _split(sums, bounds[i - 1], bounds[i + 1])[1]
    return torch.tensor(bounds[1:-1], dtype=torch.int64) - 1


def _split(sums: Tensor, start: int, end: int) -> tuple[float, int, int, int]:
    """Return less the square that the best split of a segment explains, its place, start and end.

    Args:
        sums: (rows + 1, width), of all rows before each.
        start: first row of the segment.
        end: row behind its last; a single row explains nothing more.
    """
    number = end - start
    if number < 2:
        return 0.0, end, start, end
    before = torch.arange(1, number, dtype=sums.dtype)
    shares = (before / number)[:, None]
    off = sums[start + 1 : end] - sums[start] - shares * (sums[end] - sums[start])
    gains = off.square().sum(1) * number / (before * (number - before))
    best = int(gains.argmax())
    return -float(gains[best]), start + 1 + best, start, end
