"""Least squares and row spaces in float64 on the CPU, where LAPACK handles deficient ranks."""

from __future__ import annotations

import torch
from torch import Tensor

_OVERSAMPLING = 10  # sketch columns beyond the wanted rank
_POWER_PASSES = 1
_GAP = 3.0  # a singular value within this factor of the noise tail is noise


def least_squares(matrix: Tensor, right: Tensor) -> Tensor:
    """Return the minimum-norm X (n, k) of least |matrix X - right|, matrix (m, n), right (m, k).

    Solved in float64 by a singular value decomposition, so a deficient matrix is allowed.
    """
    return torch.linalg.lstsq(exact(matrix), exact(right), driver="gelsd").solution


def row_space(matrix: Tensor, rank: int, generator: torch.Generator) -> Tensor:
    """Return an orthonormal basis (n, r) of the row space of a matrix (m, n), r <= rank.

    The rank is what it must be by construction (a token count); it is lowered only where the
    spectrum shows a gap: singular values that lie in the float32 noise tail beyond `rank`. A cut
    at a fixed ratio would throw away true directions of a badly conditioned gradient.

    A low rank is found by a randomised range finder with power passes (Halko, Martinsson and
    Tropp, 2011, algorithm 4.4), a high one by the full decomposition.

    Args:
        matrix: (m, n), any float type; decomposed in float64.
        rank: the largest possible rank.
        generator: draws the sketch.
    """
    matrix = exact(matrix)
    largest = min(matrix.shape)
    columns = rank + _OVERSAMPLING
    if rank >= largest:
        return (
            torch.eye(matrix.shape[1], dtype=matrix.dtype)
            if rank >= matrix.shape[1]
            else (torch.linalg.svd(matrix, full_matrices=False)[2].T)
        )
    if 2 * columns >= largest:
        _, values, rows = torch.linalg.svd(matrix, full_matrices=False)
    else:
        draws = torch.randn(matrix.shape[0], columns, generator=generator, dtype=matrix.dtype)
        basis = torch.linalg.qr(matrix.T @ draws)[0]
        for _ in range(_POWER_PASSES):
            basis = torch.linalg.qr(matrix.T @ torch.linalg.qr(matrix @ basis)[0])[0]
        _, values, rows = torch.linalg.svd(matrix @ basis, full_matrices=False)
        rows = rows @ basis.T
    clear = int((values[:rank] > _GAP * values[rank]).sum())
    return rows[: max(clear, 1)].T


def exact(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU."""
    return tensor.detach().to(device="cpu", dtype=torch.float64)
