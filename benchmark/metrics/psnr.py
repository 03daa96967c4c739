"""Peak signal-to-noise ratio."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric
from benchmark.metrics.mse import mse

if TYPE_CHECKING:
    from torch import Tensor

CEILING_DB = 160.0
"""An error of 1e-8 a pixel, beneath float32's rounding of one: closer is equal. Without the
ceiling a single exact image would make a mean infinite."""


def psnr(truth: Tensor, image: Tensor) -> float:
    """Return 10 log10(1 / MSE) in dB of two (channel, height, width) images, at most 160."""
    error = mse(truth, image)
    return CEILING_DB if error == 0 else min(-10 * math.log10(error), CEILING_DB)


PSNR = Metric(
    "psnr",
    "dB",
    "higher",
    "peak signal-to-noise ratio, at most 160 dB",
    psnr,
    highest=CEILING_DB,
)
