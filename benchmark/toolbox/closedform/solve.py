"""Least squares and row spaces in float64 on the CPU, where LAPACK handles deficient ranks."""

from __future__ import annotations

import torch
from torch import Tensor

_OVERSAMPLING = 10  # sketch columns beyond the wanted rank
_POWER_PASSES = 1
_WHITENINGS = 2  # the second gains 6 dB or more on ViT-B/16, a third 2
_FAR = 1e5  # a singular value this many times the noise tail is not disturbed by it
_EVEN = 2.0  # the largest noise of a row over the median's, up to which rows are alike
_QUIETEST = 1e-6  # the least noise of a row, as a share of the largest
_GAP = 3.0  # a singular value within this factor of the noise tail is noise
_ROUNDING = 2.0**-20  # float32's 2^-24, with room for the errors of sums
_GULF = 100.0  # the least drop to a null direction: 2,000 seen, and 40 between true ones
_CLEAR = 5.0  # an equation's least size over its rounding: up to 4 seen without a signal
_PRIOR = 0.5  # of the second moments: half is taken for what the layer read; not tuned


def least_squares(matrix: Tensor, right: Tensor) -> Tensor:
    """Return the minimum-norm X (n, k) of least |matrix X - right|, matrix (m, n), right (m, k).

    Solved in float64 by a singular value decomposition, so a deficient matrix is allowed.
    """
    return torch.linalg.lstsq(exact(matrix), exact(right), driver="gelsd").solution


def solve_gradient(gradient: Tensor, right: Tensor) -> Tensor:
    """Return the minimum-norm X (n, k) of least |gradient X - right|, gradient (m, n) rounded.

    As `least_squares`, but nothing is read out of float32's rounding, which differs between
    processors: singular values are null where they fall off a gulf to its size, as one does behind
    a layer norm, whose gradients sum to zero. A cut without a gulf would throw away true
    directions of a badly conditioned gradient.
    """
    left, values, rows = torch.linalg.svd(exact(gradient), full_matrices=False)
    below = values[1:]
    null = values <= torch.finfo(values.dtype).eps * max(gradient.shape) * values[0]
    null[1:] |= (values[:-1] > _GULF * below) & (below < _ROUNDING * values[0])
    rank = int((null.cumsum(0) == 0).sum())
    return rows[:rank].T @ (left[:, :rank].T @ exact(right) / values[:rank, None])


def row_space(matrix: Tensor, rank: int, generator: torch.Generator) -> Tensor:
    """Return an orthonormal basis (n, r) of the row space of a matrix (m, n), r <= rank.

    The rank is what it must be by construction (a token count); it is lowered only where the
    spectrum shows a gap: singular values that lie in the noise tail beyond `rank`. A cut at a
    fixed ratio would throw away true directions of a badly conditioned gradient.

    Rows differ in their noise: float32 rounds each in proportion to its size, so small rows (q and
    k beside v) hold directions that the large ones bury. What a basis leaves of each row tells its
    noise, and the basis is taken again of the rows divided by it.

    Args:
        matrix: (m, n), any float type; decomposed in float64.
        rank: the largest possible rank.
        generator: draws the sketch.
    """
    basis, clear = leading_rows(matrix, rank, generator)
    return basis[:, : max(clear, 1)]


def leading_rows(matrix: Tensor, rank: int, generator: torch.Generator) -> tuple[Tensor, int]:
    """Return a basis (n, r) as `row_space` does, of the rank asked for, and how much is clear.

    Directions beyond the clear ones lie in the noise tail.
    """
    matrix = exact(matrix)
    if rank >= matrix.shape[1]:
        return torch.eye(matrix.shape[1], dtype=matrix.dtype), matrix.shape[1]
    if rank >= matrix.shape[0]:
        return torch.linalg.svd(matrix, full_matrices=False)[2].T, matrix.shape[0]
    rows, values = _leading(matrix, rank, generator)
    for _ in range(_WHITENINGS):
        if values[rank - 1] > _FAR * values[rank]:
            break  # no direction is near the noise
        basis = rows[:rank].T
        left = (matrix - (matrix @ basis) @ basis.T).norm(dim=1, keepdim=True)
        if left.max() <= _EVEN * left.median():
            break  # every row has the same noise, as where a defense added it
        rows, values = _leading(matrix / left.clamp_min(_QUIETEST * left.max()), rank, generator)
    return rows[:rank].T, int((values[:rank] > _GAP * values[rank]).sum())


def rounding_off(matrix: Tensor, basis: Tensor) -> Tensor:
    """Return how far rounding alone moves the row space of a matrix (m, n), by direction.

    An input `basis @ c` is found about `|rounding @ c|` off the row space: the more, the smaller
    the singular values that hold it. Zero where a defense's noise is beyond all rounding.

    Args:
        matrix: (m, n), as given to `row_space`.
        basis: (n, r), as returned by it.

    Returns:
        (r, r) in float64.
    """
    matrix = exact(matrix)
    inside = matrix @ basis
    off = matrix - inside @ basis.T
    if not 0 < off.norm() < _ROUNDING * matrix.norm():
        return basis.new_zeros(basis.shape[1], basis.shape[1])
    noise = off.norm(dim=1, keepdim=True)
    whitened = inside / noise.clamp_min(_QUIETEST * noise.max())  # noise of norm 1 in every row
    _, values, directions = torch.linalg.svd(whitened, full_matrices=False)
    tail = 1 + (matrix.shape[0] / matrix.shape[1]) ** 0.5  # such noise's largest singular value
    return tail / values[:, None] * directions


def clear_equations(equations: Tensor, rounding: Tensor) -> Tensor:
    """Return an orthonormal basis (m, r) of the equations (m, n) that stand clear of rounding.

    The generalised singular values of the pair say how much larger than its rounding (any, n) an
    equation is.
    """
    joint = torch.linalg.qr(torch.cat([equations, rounding]))[0]
    left, values, rows = torch.linalg.svd(joint[: len(equations)], full_matrices=False)
    noise = (joint[len(equations) :] @ rows.T).norm(dim=0)
    return left[:, values > _CLEAR * noise]


def likely(gradient: Tensor) -> Tensor:
    """Return a symmetric metric (n, n) of norm 1: `likely @ w` is a likely row for a short w.

    The second moments of a gradient's rows (m, n) are those of what its layer read, mixed with
    those of what it wrote; a power of them stands for the former alone.
    """
    values, directions = torch.linalg.eigh(gradient.T @ gradient)
    limits = torch.finfo(values.dtype)
    values = (values / values[-1].clamp_min(limits.tiny)).clamp_min(limits.eps)
    return directions * values ** (_PRIOR / 2) @ directions.T


def _leading(matrix: Tensor, rank: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return the leading right singular vectors as rows, and singular values, beyond `rank`.

    A low rank is found by a randomised range finder with power passes (Halko, Martinsson and
    Tropp, 2011, algorithm 4.4), a high one by the full decomposition.
    """
    columns = rank + _OVERSAMPLING
    if 2 * columns >= min(matrix.shape):
        _, values, rows = torch.linalg.svd(matrix, full_matrices=False)
        return rows, values
    draws = torch.randn(matrix.shape[0], columns, generator=generator, dtype=matrix.dtype)
    basis = torch.linalg.qr(matrix.T @ draws)[0]
    for _ in range(_POWER_PASSES):
        basis = torch.linalg.qr(matrix.T @ torch.linalg.qr(matrix @ basis)[0])[0]
    _, values, rows = torch.linalg.svd(matrix @ basis, full_matrices=False)
    return rows @ basis.T, values


def exact(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU."""
    return tensor.detach().to(device="cpu", dtype=torch.float64)
