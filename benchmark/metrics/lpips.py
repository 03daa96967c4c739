"""Learned perceptual distance of Zhang et al., 2018 (version 0.1, three backbones), by `lpips`."""

from __future__ import annotations

import functools
import math
import pickle
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from benchmark.errors import DataUnavailable
from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor, nn

_PLACE = "https://download.pytorch.org/models"
LPIPS_URLS = {
    "alex": f"{_PLACE}/alexnet-owt-7be5be79.pth",
    "vgg": f"{_PLACE}/vgg16-397923af.pth",
    "squeeze": f"{_PLACE}/squeezenet1_1-b8a52dc0.pth",
}
"""torchvision's ImageNet-1K weights by backbone; constants, for torchvision is slow to import.

The linear layers on top are the package's own.
"""
SMALLEST_PX = 64
"""AlexNet's smallest input is 63 pixels wide; smaller images are resized up to 64."""


def lpips(
    truth: Tensor, image: Tensor, lpips_files: Mapping[str, Path], *, net: str = "alex"
) -> float | None:
    """Return the perceptual distance of two images, 0 for equal ones.

    Grey images are repeated to three channels; a side under 64 pixels is resized bilinearly to 64.

    Args:
        truth: (channel, height, width), 1 or 3 channels, pixels in [0, 1].
        image: as truth.
        lpips_files: torchvision's weights by backbone.
        net: `alex`, `vgg` or `squeeze`.

    Returns:
        The distance; None without the file, never a distance by random weights.

    Raises:
        DataUnavailable: the file is there and holds no such backbone.
    """
    import torch

    file = lpips_files.get(net)
    if file is None or not file.is_file():
        return None
    with torch.inference_mode():
        distance = _model(net, file.resolve())(_prepared(truth), _prepared(image))
    return float(distance)


def _prepared(image: Tensor) -> Tensor:
    """Return the image as (1, 3, height, width) float32 in [-1, 1], sides of 64 at least."""
    from torch.nn.functional import interpolate

    colour = image.float().expand(3, -1, -1)[None]
    size = [max(side, SMALLEST_PX) for side in image.shape[1:]]
    return 2 * interpolate(colour, size, mode="bilinear", align_corners=False) - 1


@functools.cache
def _model(net: str, file: Path) -> nn.Module:
    import torch
    from lpips import LPIPS

    # Random weights are drawn, then overwritten: otherwise the package would download them
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchvision's, about the package's spelling
        model: nn.Module = LPIPS(net=net, pnet_rand=True, verbose=False)
    backbone = model.get_submodule("net")
    try:
        weights = torch.load(file, map_location="cpu", weights_only=True)
        # The package cuts `features` into slices and keeps its numbers: slice2.3 is features.3
        backbone.load_state_dict(
            {k: weights["features." + k.split(".", 1)[1]] for k in backbone.state_dict()}
        )
    except (OSError, EOFError, KeyError, RuntimeError, TypeError, pickle.UnpicklingError) as error:
        url = LPIPS_URLS[net]
        tried = f"{file} (no state dict of {net}: {type(error).__name__})"
        name = url.rpartition("/")[2]
        raise DataUnavailable(name, [tried], f"curl -o {file} {url}") from error
    return model


def _metric(name: str, net: str, backbone: str) -> Metric:
    return Metric(
        name,
        "",
        "lower",
        f"learned perceptual distance, {backbone} 0.1; needs the backbone's weights",
        partial(lpips, net=net),
        given=("lpips_files",),
        highest=math.inf,
    )


LPIPS = _metric("lpips", "alex", "AlexNet")
LPIPS_VGG = _metric("lpips_vgg", "vgg", "VGG-16")
LPIPS_SQUEEZE = _metric("lpips_squeeze", "squeeze", "SqueezeNet 1.1")
