"""Distance of two images' spectra, FFT2D of the GradViT and MJP papers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor


def fft2d(truth: Tensor, image: Tensor) -> float:
    """Return |1 - cos(F truth, F image)| over the complex 2-D spectra of all channels.

    The Fourier transform keeps inner products (Parseval), so the cosine is that of the pixels
    and no transform is made. It is blind to brightness: an image and its half are at distance 0.

    Args:
        truth: (channel, height, width), pixels in [0, 1].
        image: as truth.

    Returns:
        A number in [0, 1]: 0 for equal images; 1 where just one is black and has no direction.
    """
    first, second = truth.double(), image.double()
    lengths = first.norm(), second.norm()
    if not all(lengths):
        return float(lengths[0] != lengths[1])
    # |u - v|^2 / 2 is 1 - cos for unit vectors, and keeps its digits where cos rounds to 1
    return float((first / lengths[0] - second / lengths[1]).square().sum() / 2)


FFT2D = Metric(
    "fft2d",
    "",
    "lower",
    "1 - cosine of the 2-D spectra, in [0, 1]",
    fft2d,
    note=(
        "GradViT and MJP print no formula, and each has another scale: GradViT lists DLG at 1.319, "
        "above the most that a cosine can give, and MJP's unprotected models lie at 0.002 to 0.006."
    ),
)
