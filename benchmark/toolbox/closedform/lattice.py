"""Pixels are integers: real-valued answers about a batch become exact images.

Cameras, decoders and image libraries hand 8-bit levels to a client, and the affine sets of a batch
(`affine.py`) hold few integer points. With k well-conditioned pixels of a patch as pivots z, every
other pixel is a linear function of them, `base + M z`, and must be an integer too. This is integer
least squares, as satellite navigation has it: one basis `[G, w M; 0, -w I]`, reduced by LLL
(Lenstra, Lenstra and Lovász 1982), in which Babai's nearest plane (1986) answers for all patches
of an image. G says how far an estimate may err in each direction, w how little the sets do. Where
G hardly trusts the estimate, the short vectors are the differences of the images themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import torch
from scipy.linalg import qr
from torch import Tensor

from benchmark.errors import BenchmarkError
from benchmark.toolbox.closedform.affine import AffineSets
from benchmark.toolbox.closedform.solve import exact

_WHOLE = 0.1  # levels off its set up to which an integer patch lies in it: 0.02 seen of true ones
_WHITE = 255
_PRECISIONS = (1e-3, 1e-4)  # levels that truth lies off its set, until measured: two victims'
_DIGITS = 8  # bits of the reduction beneath one step along the basis' shortest direction


@dataclass(frozen=True)
class Snapped:
    """Patches, of whole levels where such a one was found.

    Attributes:
        patches: (batch, positions, pixels) in levels, those given where none was found.
        whole: (batch, positions), true where an integer patch was found in the set. It is the
            true one unless another member was nearer to the estimate: a difference of two flat
            patches, a level here and there, leads to a twin that nothing here tells apart.
    """

    patches: Tensor
    whole: Tensor


@dataclass(frozen=True)
class PixelLattice:
    """A reduced basis of the integers that pixels on affine sets may differ by.

    Attributes:
        pivots: (dimension,) the pixels that determine a patch on its set.
        checked: (extra,) the pixels that must come out whole beside them.
        from_pivots: (pixels, dimension), M: a difference is `from_pivots @ z`.
        metric: (dimension, dimension), G.
        weight: w.
        steps: (dimension + extra, dimension), the z of each basis vector.
        basis: (dimension + extra, dimension + extra), its rows.
    """

    pivots: Tensor
    checked: Tensor
    from_pivots: Tensor
    metric: Tensor
    weight: float
    steps: Tensor
    basis: Tensor

    def nearest(self, estimates: Tensor, offsets: Tensor) -> Tensor:
        """Return the points of sets nearest to estimates whose pixels are whole, by nearest plane.

        Args:
            estimates: (n, pixels) in levels, near `offsets + directions @ c`.
            offsets: (n, pixels), a point of each one's set.

        Returns:
            (n, pixels), whole at the pivots, and off whole numbers elsewhere where it failed.
        """
        near = estimates[:, self.pivots].round()
        start = offsets + (near - offsets[:, self.pivots]) @ self.from_pivots.T
        inside = (estimates[:, self.pivots] - near) @ self.metric.T
        beside = (start.round() - start)[:, self.checked] * self.weight
        planes, heights = torch.linalg.qr(self.basis.T)
        left = torch.cat([inside, beside], dim=1) @ planes
        steps = torch.zeros_like(left)
        for plane in reversed(range(len(self.basis))):
            steps[:, plane] = (left[:, plane] / heights[plane, plane]).round()
            left = left - steps[:, plane, None] * heights[:, plane]
        return start + steps @ self.steps @ self.from_pivots.T

    def differences(self) -> Tensor:
        """Return those of its vectors (count, pixels) whose pixels are all whole.

        Where the estimates were hardly trusted and the sets are precise enough these are
        `dimension` many, and every difference of two images at one position is a whole
        combination of them.
        """
        found = self.steps @ self.from_pivots.T
        whole = (found - found.round()).abs().amax(1) < _WHOLE
        short = self.basis[:, self.steps.shape[1] :].abs().amax(1) < self.weight / 2
        return found[whole & short].round()


def reduce_pixels(
    directions: Tensor,
    metric: Tensor,
    *,
    precision: float,
    extra: int,
    generator: torch.Generator,
) -> PixelLattice:
    """Return the reduced lattice of whole pixels on affine sets; seconds, up to minutes.

    Args:
        directions: (pixels, dimension) of the sets, orthonormal, for patches in levels.
        metric: (any, dimension): an estimate's error `directions @ c` has `metric @ c` of about 1
            in every direction.
        precision: how far truth lies off the sets, in levels.
        extra: pixels to check beside the pivots. More tell more points apart, at a larger basis.
        generator: draws them.

    Raises:
        BenchmarkError: python-flint is not installed.
    """
    dimension = directions.shape[1]
    pivots = torch.from_numpy(qr(directions.T.numpy(), mode="economic", pivoting=True)[2])
    pivots, others = pivots[:dimension], pivots[dimension:]
    checked = others[torch.randperm(len(others), generator=generator)[:extra]]
    within = torch.linalg.inv(directions[pivots])
    from_pivots, weight = directions @ within, 1 / precision
    inside = torch.linalg.qr(metric @ within)[1]
    bits = _DIGITS - torch.linalg.matrix_norm(inside, -2).log2().floor()
    start = torch.zeros(dimension + len(checked), dimension + len(checked), dtype=within.dtype)
    start[:dimension, :dimension] = inside.T
    start[:dimension, dimension:] = weight * from_pivots[checked].T
    start.diagonal()[dimension:] = -weight
    start = (start * 2**bits).round()
    # what the reduction did to the rows, read off its rounded entries
    reduced = _lll(start)
    steps = torch.linalg.solve(start[:dimension, :dimension].T, reduced[:, :dimension].T).T.round()
    beside = steps @ start[:dimension, dimension:] - reduced[:, dimension:]
    wholes = (beside / -start.diagonal()[dimension:]).round()
    basis = [steps @ inside.T, weight * (steps @ from_pivots[checked].T - wholes)]
    return PixelLattice(
        pivots=pivots,
        checked=checked,
        from_pivots=from_pivots,
        metric=inside,
        weight=weight,
        steps=steps,
        basis=torch.cat(basis, dim=1),
    )


def snap(
    patches: Tensor,
    sets: AffineSets,
    *,
    metrics: Sequence[Tensor] | None = None,
    errors: Sequence[float] = (1.0,),
    extras: Sequence[int] = (40, 80),
    generator: torch.Generator,
) -> Snapped:
    """Return patches with every pixel right, where rounding or the nearest plane gives them.

    An integer patch is taken only where it lies in its set and its levels in 0..255; all others
    stay as they are, and so sets that are too coarse change nothing. Which member of its set a
    patch becomes is decided by the distance to the estimate, in its image's metric. How far
    estimates and sets err is measured on the patches that are whole already.

    Args:
        patches: (batch, positions, pixels), the estimates, in levels.
        sets: what may stand at each position, in levels.
        metrics: an image's (any, dimension): the estimates' error `directions @ c` is likely where
            `metric @ c` is short. The matrix of the linear solve that made them is one; on
            ViT-B/32 its worst direction is 100 times worse than its best. None takes all
            directions for alike.
        errors: root mean squares of the estimates' error, in levels, to try after the measured
            one. 50 leaves little to the estimates but the choice among members; a worse estimate
            may then become another image's patch.
        extras: numbers of extra pixels to try, see `reduce_pixels`.
        generator: draws the pixels.

    Raises:
        BenchmarkError: rounding was not enough, and python-flint is not installed.
    """
    given = exact(patches)
    answers, whole = given.clone(), torch.zeros(given.shape[:2], dtype=torch.bool)
    for image in range(len(given)):
        _settle(answers[image], whole[image], given[image].round(), sets)
    if metrics is None:
        metrics = [torch.eye(sets.dimension)] * len(given)
    metrics = [_per_level(exact(each), given.shape[-1]) for each in metrics]
    for extra, image in product(extras, range(len(given) if sets.dimension else 0)):
        metric, known = metrics[image], whole[image]
        measured = _size((given[image] - answers[image])[known] @ sets.directions @ metric.T)
        precise = _size(sets.distances(answers)[whole])
        tried = product(
            [measured, *errors] if measured else errors, [precise] if precise else _PRECISIONS
        )
        for error, precision in tried:
            left = ~whole[image]
            if not left.any():
                break
            lattice = reduce_pixels(
                sets.directions,
                metric / error,
                precision=precision,
                extra=extra,
                generator=generator,
            )
            points = given[image].clone()
            points[left] = lattice.nearest(points[left], sets.offsets[left])
            _settle(answers[image], whole[image], points.round(), sets)
    return Snapped(answers, whole)


def _settle(answers: Tensor, whole: Tensor, points: Tensor, sets: AffineSets) -> None:
    """Take those integer points (positions, pixels) of an image that lie in their sets."""
    off = points - sets.offsets
    off = off - (off @ sets.directions) @ sets.directions.T
    lies = (off.abs().amax(-1) < _WHOLE) & (points.amin(-1) >= 0) & (points.amax(-1) <= _WHITE)
    answers[lies & ~whole] = points[lies & ~whole]
    whole |= lies


def _per_level(metric: Tensor, pixels: int) -> Tensor:
    """Scale a metric so that an error of norm 1 in all its directions is one level a pixel."""
    triangle = torch.linalg.qr(metric)[1]
    return triangle * torch.linalg.inv(triangle).norm() / pixels**0.5


def _size(errors: Tensor) -> float:
    """Return the root mean square of errors; zero of none."""
    return float(errors.square().mean().sqrt()) if errors.numel() else 0.0


def _lll(basis: Tensor) -> Tensor:
    """Return the reduced basis of integer rows."""
    try:
        from flint import fmpz_mat
    except ImportError as error:
        raise BenchmarkError(
            "lattices want python-flint, which is not installed: pip install 'gradleak[lattice]'"
        ) from error
    rows = [[int(entry) for entry in row] for row in basis.round().tolist()]
    reduced = fmpz_mat(rows).lll().tolist()
    return torch.tensor([[float(int(e)) for e in row] for row in reduced], dtype=basis.dtype)
