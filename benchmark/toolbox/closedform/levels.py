"""Pixels that were stored as integers are found as integers: the nearest plane of their lattice."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from benchmark.toolbox.closedform.completion import Frame, complete
from benchmark.toolbox.closedform.posterior import Posterior

_ROUNDS = 6  # of completion among what is settled
_CERTAIN = 0.15  # standard deviation in levels at which rounding is right, by three of them
_DECIDED = 0.24  # 1 / sqrt(2 pi e): of less, a normal distribution's bulk holds one integer point
_COMPLETED = 2.0  # levels, error of what total variation fills; 1 to 4 decide alike
_FINEST = 0.003  # levels: the least error that is believed
_TINY = 1e-12
_FITS = 2.0  # mean square of what levels leave, over the expected: right ones 0.6, wrong ones 14


def snap(posterior: Posterior, frame: Frame, levels: int, patches: Tensor) -> Tensor:
    """Return patches (patches, pixels) whose pixels are levels, where the update says which.

    Pixels err by lines: the same pixel of every patch, where the error lies among the patches, or
    else the pixels of one patch. Each line is settled by itself, by the nearest plane (Babai,
    Combinatorica, 1986), its surest pixel first. Levels that leave no more than the update's noise
    stand, and the other lines are completed and settled anew among them. Where the noise is too
    large for any of this the patches come back as they are.

    Args:
        posterior: of the patches.
        frame: how they make an image.
        levels: the number of levels a pixel can have.
        patches: the likeliest, (patches, pixels), from `complete` or the posterior's own mean.
    """
    unit, top = frame.pixels, levels - 1
    among = posterior.among.directions.shape[1] > 0
    covariance = _covariance(posterior, frame, top, among)
    values, directions = torch.linalg.eigh(covariance)
    values = values.clamp_min(_FINEST**2)
    narrowed = values / (1 + values / _COMPLETED**2)
    if narrowed.log().mean() > 2 * torch.tensor(_DECIDED).log():
        return patches
    covariance = directions * narrowed @ directions.T
    told = _lines(unit(posterior.mean) * top, among)
    settled = torch.zeros(told.shape[1], dtype=torch.bool)
    for _ in range(_ROUNDS):
        lines = _lines(unit(patches) * top, among)
        lines[:, ~settled] = nearest_plane(lines[:, ~settled], covariance).clamp(0, top)
        left = directions.T @ (lines - told)
        fits = (left.square() / values[:, None]).mean(0) < _FITS
        found = frame.normalised(_lines(lines, among) / top)
        if fits.all() or not (fits & ~settled).any():
            break
        settled |= fits
        known = (settled if among else settled[:, None]).expand_as(patches)
        now = replace(posterior, mean=torch.where(known, found, posterior.mean))
        patches = complete(now, frame, known)
    return found


def nearest_plane(lines: Tensor, covariance: Tensor) -> Tensor:
    """Return integer lines (n, count) near lines (n, count) that err by a covariance (n, n).

    The surest element is rounded, the others move with it as the covariance says, and so on.
    """
    if covariance.diagonal().max() < _CERTAIN**2:
        return lines.round()
    lines, covariance, found = lines.clone(), covariance.clone(), torch.empty_like(lines)
    done = torch.zeros(len(lines), dtype=lines.dtype)  # infinite where rounded
    for _ in range(len(lines)):
        surest = int((covariance.diagonal() + done).argmin())
        done[surest] = torch.inf
        found[surest] = lines[surest].round()
        gain = covariance[:, surest] / covariance[surest, surest].clamp_min(_TINY)
        lines += gain[:, None] * (found[surest] - lines[surest])
        covariance -= gain[:, None] * covariance[surest].clone()
    return found


def _lines(patches: Tensor, among: bool) -> Tensor:
    """Return patches (patches, pixels) with a line a column, or such lines as patches."""
    return patches.clone() if among else patches.T.clone()


def _covariance(posterior: Posterior, frame: Frame, top: int, among: bool) -> Tensor:
    """Return the covariance of the pixels of a line, in levels squared, the mean over lines."""
    scale = top * frame.each(frame.scale)
    if among:
        size = (posterior.within.variance() * scale.square()).mean()
        factor = posterior.among.directions * posterior.among.gains
        return size * factor @ factor.T
    factor = scale[:, None] * posterior.within.directions * posterior.within.gains
    return factor @ factor.T
