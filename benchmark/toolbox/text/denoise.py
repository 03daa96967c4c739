"""Rungs under noise: few rows of a gradient differ from the next by more than the noise.

The rows of an imprinted layer's gradient are a cumulative sum with as many jumps as tokens, so
noise on each row averages out between jumps. Source: Fowl et al. (ICLR 2023, Decepticons, appendix
G), who find the jumps by orthogonal matching pursuit; here jumps of all columns are pooled, fitted
anew by the means between them, and kept where they rise above the noise.
"""

from __future__ import annotations

import torch
from torch import Tensor

_NEAR = 3  # rows within which jumps found in several columns are one
_ABOVE = 2.0  # times the square that noise alone would have
_SPARE = 1.5  # jumps sought, times those expected


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
    while len(edges):
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64), edges + 1])
        ends = torch.cat([bounds[1:], torch.tensor([len(rows)])])
        sizes = (ends - bounds).float()
        sums = torch.cat([torch.zeros_like(rows[:1]), rows.cumsum(0)])
        means = (sums[ends] - sums[bounds]) / sizes.clamp_min(1)[:, None]
        lost = means[:-1] - means[1:]
        alone = noise**2 * rows.shape[1] * (1 / sizes[:-1] + 1 / sizes[1:].clamp_min(1))
        ratio = lost.square().sum(1) / alone.clamp_min(torch.finfo(rows.dtype).tiny)
        if float(ratio.min()) > _ABOVE:
            return edges, lost
        edges = torch.cat([edges[: int(ratio.argmin())], edges[int(ratio.argmin()) + 1 :]])
    return edges, rows[:0]


def _pursue(rows: Tensor, expected: int) -> Tensor:
    """Return candidate edges: where the columns' sparse fits jump, pooled and thinned out."""
    from sklearn.linear_model import orthogonal_mp_gram

    number, sought = len(rows), min(int(_SPARE * expected) + 2, len(rows) // 2)
    # as many columns as the vectors below the jumps can span hold all but noise
    axes = torch.linalg.eigh(rows.T.double() @ rows.double()).eigenvectors
    rows = rows.double() @ axes[:, -min(2 * expected + 2, rows.shape[1]) :]
    # column j is one up to row j: inner products are cumulative sums, the Gram matrix known
    lengths = torch.arange(1, number + 1, dtype=torch.float64)
    scale = lengths.rsqrt()
    gram = torch.minimum(lengths[:, None], lengths) * scale[:, None] * scale
    inner = rows.cumsum(0) * scale[:, None]
    found = orthogonal_mp_gram(gram.numpy(), inner.numpy(), n_nonzero_coefs=sought)
    energy = (torch.from_numpy(found).view(number, -1) * scale[:, None]).square().sum(1)
    energy[-1] = 0  # not a jump, but what all rows have
    edges: list[int] = []
    while len(edges) < sought and float(energy.max()) > 0:
        edges.append(int(energy.argmax()))
        energy[max(0, edges[-1] - _NEAR) : edges[-1] + _NEAR + 1] = 0
    return torch.tensor(sorted(edges), dtype=torch.int64)
