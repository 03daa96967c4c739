"""Group registration: the restarts of one trial agree on an image, and are drawn to it."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Image = NDArray[np.float64]
FLOW_WINDOW = 9
"""An image's shorter side over the radius of the windows whose flow is one number."""


def register(images: Tensor, align: Literal["shift", "flow"] = "shift") -> Tensor:
    """Return the consensus of one image's restarts: the mean of each, registered to their mean.

    Eq. 9 of GradViT (Hatamizadeh et al., CVPR 2022), after GradInversion (Yin et al., CVPR 2021);
    they register by RANSAC-Flow, a trained network, in place of which stands one of:

    - shift: whole pixels, at the peak of the plain cross-correlation. (Phase correlation
      whitens first; where all restarts differ it finds but the restart itself in the mean.) The
      default: it resamples nothing, so detail stays, and costs milliseconds.
    - flow: that shift, then the dense flow of iterative Lucas-Kanade on what it leaves, with
      bilinear resampling; for restarts that are turned or stretched, about 0.5 s each at 224 px.

    What moves in from outside an image repeats its edge. Equal restarts come back as they are, to
    rounding. The result carries no gradient: it is a target.

    Args:
        images: (seeds, channel, height, width), finite; a ValueError else, because one diverged
            restart would draw all others to itself: leave it out first.
        align: how an image may move.

    Returns:
        (channel, height, width), of the images' type and device.
    """
    finite = images.isfinite().flatten(1).all(1)
    if not finite.all():
        diverged = (~finite).nonzero().flatten().tolist()
        raise ValueError(f"register: restarts {diverged} are not finite; leave them out")
    restarts: list[Image] = list(images.detach().cpu().double().numpy())
    target = np.mean(restarts, axis=0)
    grid = np.indices(target.shape[1:])
    moved = []
    for image in restarts:
        source = grid + _find_displacement(target.mean(0), image.mean(0), align)
        moved.append([_sample(channel, source) for channel in image])
    return torch.from_numpy(np.mean(moved, axis=0)).to(images)


def _find_displacement(target: Image, image: Image, align: Literal["shift", "flow"]) -> Image:
    """Return (row and column, height, width): how far off the image holds what belongs there."""
    from skimage.registration import optical_flow_ilk, phase_cross_correlation

    shift, _, _ = phase_cross_correlation(  # type: ignore[no-untyped-call, unused-ignore]
        target, image, normalization=None
    )
    offset: Image = np.broadcast_to(-shift[:, None, None], (2, *target.shape))
    if align == "shift":
        return offset
    near = _sample(image, np.indices(target.shape) + offset)
    radius = max(1, min(target.shape) // FLOW_WINDOW)
    flow = optical_flow_ilk(  # type: ignore[no-untyped-call, unused-ignore]
        target, near, radius=radius, dtype=np.float64
    )
    return offset + flow


def _sample(channel: Image, source: Image) -> Image:
    """Return a channel read at `source`, (row and column, height, width): bilinear, edge held."""
    from skimage.transform import warp

    return warp(  # type: ignore[no-untyped-call, unused-ignore]
        channel, source, order=1, mode="edge"
    )
