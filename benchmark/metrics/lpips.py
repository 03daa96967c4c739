"""Learned perceptual distance of Zhang et al., 2018 (AlexNet, version 0.1), by `lpips`."""

from __future__ import annotations

import functools
import pickle
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.errors import DataUnavailable
from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor, nn

ALEXNET_URL = "https://download.pytorch.org/models/alexnet-owt-7be5be79.pth"
"""torchvision's AlexNet, ImageNet-1K; a constant, for torchvision is slow to import."""
ALEXNET_FILE = ALEXNET_URL.rpartition("/")[2]
SMALLEST_PX = 64
"""AlexNet's smallest input is 63 pixels wide; smaller images are resized up to 64."""


def lpips(truth: Tensor, image: Tensor, lpips_backbone: Path | None) -> float | None:
    """Return the perceptual distance of two images, 0 for equal ones.

    Grey images are repeated to three channels; a side under 64 pixels is resized bilinearly to 64.

    Args:
        truth: (channel, height, width), 1 or 3 channels, pixels in [0, 1].
        image: as truth.
        lpips_backbone: a file of torchvision's AlexNet weights.

    Returns:
        The distance; None without the file, never a distance by random weights.

    Raises:
        DataUnavailable: the file is there and holds no AlexNet.
    """
    import torch

    if lpips_backbone is None or not lpips_backbone.is_file():
        return None
    with torch.inference_mode():
        distance = _model(lpips_backbone.resolve())(_prepared(truth), _prepared(image))
    return float(distance)


def _prepared(image: Tensor) -> Tensor:
    """Return the image as (1, 3, height, width) float32 in [-1, 1], sides of 64 at least."""
    from torch.nn.functional import interpolate

    colour = image.float().expand(3, -1, -1)[None]
    size = [max(side, SMALLEST_PX) for side in image.shape[1:]]
    return 2 * interpolate(colour, size, mode="bilinear", align_corners=False) - 1


@functools.cache
def _model(backbone: Path) -> nn.Module:
    import torch
    from lpips import LPIPS

    # Random weights are drawn, then overwritten: otherwise the package would download them
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision's, about the package's spelling
        model: nn.Module = LPIPS(net="alex", pnet_rand=True, verbose=False)
    net = model.get_submodule("net")
    try:
        weights = torch.load(backbone, map_location="cpu", weights_only=True)
        # The package cuts `features` into slices and keeps its numbers: slice2.3 is features.3
        net.load_state_dict(
            {k: weights["features." + k.split(".", 1)[1]] for k in net.state_dict()}
        )
    except (OSError, EOFError, KeyError, RuntimeError, TypeError, pickle.UnpicklingError) as error:
        tried = f"{backbone} (no AlexNet state dict: {type(error).__name__})"
        raise DataUnavailable(ALEXNET_FILE, [tried], f"curl -o {backbone} {ALEXNET_URL}") from error
    return model


LPIPS = Metric(
    "lpips",
    "",
    "lower",
    "learned perceptual distance, AlexNet 0.1; needs the backbone's weights",
    lpips,
    given=("lpips_backbone",),
)
