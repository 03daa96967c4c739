"""Images made when they are asked for: no more are in memory than a caller holds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmark.contract import DataStatistics

_COUNTED = 1000  # images that statistics are taken from
_AT_ONCE = 50


class LazyImages:
    """Images of a split behind the face of a tensor: `len`, `shape` and an index.

    Args:
        make: makes the images of rows, (rows, channel, height, width) float32 in [0, 1].
        shape: (N, channel, height, width).

    Attributes:
        shape: as a tensor's.
    """

    def __init__(self, make: Callable[[NDArray[np.int64]], Tensor], shape: tuple[int, ...]) -> None:
        self._make, self.shape = make, torch.Size(shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Tensor | slice | int) -> Tensor:
        """Make the images of rows, anew each time.

        Args:
            rows: an index, a slice, a mask or indices of any shape.
        """
        chosen = torch.arange(len(self))[rows]
        return self._make(chosen.reshape(-1).numpy()).reshape(*chosen.shape, *self.shape[1:])

    def statistics(self) -> DataStatistics:
        """Return mean image, mean and standard deviation of at most 1000 images.

        They stand at equal distances, so that no class is left out for coming late.
        """
        rows = torch.linspace(0, len(self) - 1, min(len(self), _COUNTED)).round().long()
        total = square = torch.zeros(self.shape[1:], dtype=torch.float64)
        for part in torch.split(rows, _AT_ONCE):
            images = self[part].double()
            total, square = total + images.sum(0), square + images.square().sum(0)
        image, power = total / len(rows), (square / len(rows)).mean((1, 2))
        mean = image.mean((1, 2))
        std = (power - mean.square()).clamp(min=0).sqrt()
        return DataStatistics(image.float(), mean.float(), std.float())
