"""Structural similarity of Wang et al., 2004, by scikit-image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor

WINDOW_PX = 11
"""Width of the Gaussian window (sigma 1.5, cut at 3.5 sigma)."""


def ssim(truth: Tensor, image: Tensor) -> float | None:
    """Return the structural similarity, in [-1, 1], averaged over channels, in float64.

    Args:
        truth: (channel, height, width), pixels in [0, 1].
        image: as truth.

    Returns:
        1 for equal images; None where an image is smaller than the window.
    """
    from skimage.metrics import structural_similarity

    if min(truth.shape[1:]) < WINDOW_PX:
        return None
    similarity = structural_similarity(  # type: ignore[no-untyped-call, unused-ignore]
        truth.double().numpy(),
        image.double().numpy(),
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        data_range=1,
        channel_axis=0,
    )
    return float(similarity)


SSIM = Metric(
    "ssim", "", "higher", "structural similarity (Wang et al.), at most 1", ssim, lowest=-1.0
)
