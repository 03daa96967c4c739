"""What one update tells of an image's patches, as a normal distribution.

The closed forms are linear in the patches, and what an update says off its own structure is noise,
float32's rounding or a defense's: its size is read off the update, never told. So each form answers
a mean and how far it may err in every direction; where an equation is missing it errs as widely as
pixels do, and a prior has to say the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmark.toolbox.closedform.solve import exact, row_space

_PASSES = 2  # of equal noise over rows and columns; a third changes nothing seen
_QUIETEST = 1e-6  # the least noise of a row or a column, as a share of the largest
_FINEST = 2.0**-24  # float32: no equation is known better
_SLIGHT = 0.01  # a spread within patches that is told from an equal one
_NEGLIGIBLE = 3e-4  # normalised pixels, 0.02 levels: a direction of less error is known
_TINY = torch.finfo(torch.float64).tiny
_ROUNDS = 8  # of the equations' variances; 0.1 dB a round from the sixth on


@dataclass(frozen=True)
class Spread:
    """A symmetric matrix, `plain` on the diagonal and `gains` more along orthonormal directions.

    Attributes:
        directions: (n, k) orthonormal.
        gains: (k,).
        plain: along every direction.
    """

    directions: Tensor
    gains: Tensor
    plain: float

    def __call__(self, rows: Tensor) -> Tensor:
        """Return rows (m, n) times the matrix."""
        return self.plain * rows + (rows @ self.directions * self.gains) @ self.directions.T

    def variance(self) -> Tensor:
        """Return the diagonal of the matrix squared, (n,)."""
        more = (self.plain + self.gains).square() - self.plain**2
        return self.plain**2 + self.directions.square() @ more


@dataclass(frozen=True)
class Posterior:
    """Patches and how they may err: by `among @ E @ within`, E (patches, pixels) of variance 1.

    Attributes:
        mean: (patches, pixels) float64, normalised by the victim.
        among: the error's spread among the patches.
        within: its spread within a patch.
    """

    mean: Tensor
    among: Spread
    within: Spread

    def open(self) -> Posterior:
        """Return this posterior less the directions in which patches are as good as known."""
        size = self.within.variance().mean()
        wide = self.among.gains.square() * size > _NEGLIGIBLE**2
        among = replace(
            self.among, directions=self.among.directions[:, wide], gains=self.among.gains[wide]
        )
        return replace(self, among=among)

    def errors(self, draws: Tensor) -> Tensor:
        """Return the errors (patches, pixels) that draws (patches, pixels) stand for."""
        return self.among(self.within(draws).T).T

    def std(self) -> Tensor:
        """Return the standard deviation of every pixel, (patches, pixels)."""
        return (self.among.variance()[:, None] * self.within.variance()).sqrt()


def position_posterior(
    position_gradient: Tensor, embedding_gradient: Tensor, *, centred: bool
) -> Posterior:
    """Return what `patches_from_positions` knows and what it does not.

    The structural rank of a position gradient is min(patches, width), one less behind a layer
    norm, whose gradients sum to zero over the width. What the embedding's gradient holds off that
    is noise: its own, and the position gradient's times the patches X, which mixes patches with
    each other. So a pixel's errors have the covariance `own * I + mixed * X.T @ X`. Noise also
    lengthens the position gradient's singular values, which is taken off again.

    Args:
        position_gradient: (patches, width), the rows of the patches alone.
        embedding_gradient: (width, pixels), of the patch embedding's weight.
        centred: whether every path from the positions begins with a layer norm.
    """
    gradient, right = exact(position_gradient), exact(embedding_gradient)
    patches, width = gradient.shape
    left, values, rows = torch.linalg.svd(gradient, full_matrices=True)
    rank = min(patches, width - centred)
    left_rank, values, read = left[:, :rank], values[:rank], rows[:rank] @ right
    off = rows[rank:] @ right
    finest = (_FINEST * right.square().mean().sqrt()).square().clamp_min(_TINY)
    own, mixed = finest, finest / (1 + patches)
    if len(off):  # pixels are normalised: the patches' square sum is about their number
        own, mixed = (off.square().mean().clamp_min(finest) / (1 + patches) for _ in range(2))
    for last in (False, True):
        gain = (values.square() - width * mixed).clamp_min(0) / values.clamp_min(_TINY)
        unsure = 1 / (gain.square() / (own + mixed * patches) + 1)  # variance of X along `left`
        mean = left_rank @ ((1 - unsure)[:, None] * read / gain.clamp_min(_TINY)[:, None])
        if last or not len(off):
            break
        energy = mean.square().sum() + right.shape[1] * (unsure.sum() + patches - rank)
        own, mixed = _parts_of_noise(off, mean, energy, finest)
    _, sizes, directions = torch.linalg.svd(mean, full_matrices=False)
    more = (1 + mixed / own * sizes.square()).sqrt() - 1
    within = Spread(directions[more > _SLIGHT].T, more[more > _SLIGHT], 1.0)
    size = within.variance().mean()
    variance = left.new_full((patches,), 1.0) / size
    variance[:rank] = 1 / (gain.square() / own + size)
    return Posterior(mean, Spread(left, variance.sqrt(), 0.0), within)


def _parts_of_noise(
    off: Tensor, patches: Tensor, energy: Tensor, finest: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the variances of noise of its own, and of the noise that patches multiply.

    Args:
        off: (rows, pixels), noise alone.
        patches: (patches, pixels), as far as known.
        energy: their expected square sum.
        finest: the least variance believed.
    """
    _, _, directions = torch.linalg.svd(patches, full_matrices=False)
    loud = directions[: min(len(patches), off.shape[1] // 2)]
    total = off.square().sum()
    quiet = total - (off @ loud.T).square().sum()  # where patches hold least, or nothing
    own = (quiet / (len(off) * (off.shape[1] - len(loud)))).clamp_min(finest)
    mixed = (total / len(off) - off.shape[1] * own) / energy
    return own, mixed.clamp_min(0)


def span_posterior(
    attention_gradient: Tensor,
    embedding_gradient: Tensor,
    *,
    tokens: int,
    weight: Tensor,
    offsets: Tensor,
    norm: tuple[Tensor, Tensor] | None,
    generator: torch.Generator,
) -> Posterior:
    """Return what `patches_from_span` knows and what it does not; arguments as there.

    Every right singular vector of the attention's gradient is an equation: what it leaves of a
    token, a variance of its own, large within the span and rounding off it. No rank is chosen: the
    variances are those that make the observed most likely, found by expectation and maximisation
    (Dempster, Laird and Rubin, 1977) over the patches. Before the update patches
    vary as the embedding's gradient shows them to, by `solve.likely`'s rule, at the pixels' size.
    """
    scales, directions = _equal_noise(exact(attention_gradient), tokens)
    seen = exact(embedding_gradient)
    basis = row_space(seen, min(tokens - 1, seen.shape[1]), generator)
    unknown, known = exact(weight) @ basis, exact(offsets).T
    if norm is not None:
        scale, shift = (exact(tensor)[:, None] for tensor in norm)
        unknown = scale * (unknown - unknown.mean(0))
        known = scale * (known - known.mean(0))
    prior = _patch_prior(seen @ basis, seen.shape[1])
    unknown = directions.T @ (unknown / scales) @ prior
    known = directions.T @ (known / scales)
    if norm is not None and shift.any():  # as in `patches_from_span`: one unknown more, any size
        free = directions.T @ (shift / scales)
        free = free / free.norm()
        unknown, known = (part - free @ (free.T @ part) for part in (unknown, known))
    solution, spread = _maximise(unknown, known)
    factor = basis @ prior @ spread
    sides, gains, _ = torch.linalg.svd(factor, full_matrices=False)
    among = Spread(sides.new_zeros(len(offsets), 0), sides.new_zeros(0), 1.0)
    return Posterior((basis @ (prior @ solution)).T, among, Spread(sides, gains, 0.0))


def _equal_noise(gradient: Tensor, tokens: int) -> tuple[Tensor, Tensor]:
    """Return the scales of a gradient's columns and its right singular vectors, of equal noise.

    float32 rounds rows, and columns, in proportion to their size; see `solve.row_space`.

    Returns:
        (width, 1) and (width, width), a direction a column, the largest first.
    """
    rows, columns = gradient.new_ones(len(gradient), 1), gradient.new_ones(gradient.shape[1])
    rank = max(1, min(tokens, gradient.shape[1] - 2))
    for _ in range(_PASSES):
        even = gradient / rows / columns
        inside = torch.linalg.svd(even, full_matrices=False)[2][:rank].T
        left = even - (even @ inside) @ inside.T
        over_rows, over_columns = left.norm(dim=1, keepdim=True), None
        if not over_rows.any():
            break  # nothing is off the span
        over_rows = over_rows.clamp_min(_QUIETEST * over_rows.max())
        over_columns = (left / over_rows).norm(dim=0)
        over_columns = over_columns.clamp_min(_QUIETEST * over_columns.max())
        rows = rows * over_rows
        columns = columns * over_columns / over_columns.mean()
    directions = torch.linalg.svd(gradient / rows / columns, full_matrices=False)[2].T
    return columns[:, None], directions


def _patch_prior(gradient: Tensor, pixels: int) -> Tensor:
    """Return a factor (n, n) of the patches' covariance before the update's span is asked."""
    values, directions = torch.linalg.eigh(gradient.T @ gradient)
    limits = torch.finfo(values.dtype)
    values = (values / values[-1].clamp_min(limits.tiny)).clamp_min(limits.eps).sqrt()
    size = pixels / values.sum()  # normalised pixels vary by about 1
    return directions * (size * values).sqrt()


def _maximise(unknown: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Solve `unknown @ X = -known` by equations of unknown variance, X (n, patches) of variance 1.

    Returns:
        X's mean, (n, patches), and a factor (n, n) of its covariance.
    """
    size = known.square().mean(1).max().clamp_min(torch.finfo(known.dtype).tiny)
    identity = torch.eye(unknown.shape[1], dtype=unknown.dtype)
    finest = size * _FINEST**2
    variance = size * torch.logspace(0, -8, len(unknown), dtype=unknown.dtype)
    for _ in range(_ROUNDS):
        weights = variance.rsqrt()[:, None]
        left, values, rows = torch.linalg.svd(
            torch.cat([weights * unknown, identity]), full_matrices=False
        )
        factor = rows.T / values
        mean = -factor @ (left[: len(unknown)].T @ (weights * known))
        missed = (unknown @ mean + known).square().mean(1)
        variance = (missed + (unknown @ factor).square().sum(1)).clamp_min(finest)
    return mean, factor
