"""Mean squared error, in pixels and as the victim sees them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor


def mse(truth: Tensor, image: Tensor) -> float:
    """Return the mean squared difference of two (channel, height, width) images, in float64."""
    return float((truth.double() - image.double()).square().mean())


def normalised_mse(truth: Tensor, image: Tensor, std: tuple[float, ...]) -> float:
    """Return the MSE of two images normalised by the victim, as APRIL's Table 1 prints it.

    Args:
        truth: (channel, height, width), pixels in [0, 1].
        image: as truth.
        std: (channel,), of the victim's normalisation; its mean cancels in the difference.
    """
    scale = truth.double().new_tensor(std).reshape(-1, 1, 1)
    return mse(truth.double() / scale, image.double() / scale)


MSE = Metric("mse", "pixel^2", "lower", "mean squared error of pixels in [0, 1]", mse)
NORMALISED_MSE = Metric(
    "normalised_mse",
    "std^2",
    "lower",
    "mean squared error of pixels normalised by the victim's mean and std",
    normalised_mse,
    given=("std",),
    highest=math.inf,
    note=(
        "Answers are clipped to [0, 1] before they are normalised: our reading of APRIL's Table 1, "
        "which does not say it."
    ),
)
