"""What every tier's reader returns: pictures as they are stored, and their labels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Pictures:
    """One split as stored.

    Attributes:
        pixels: each (height, width) or (height, width, channel), uint8 in 0 to 255 or float32 in
            [0, 1]; sizes may differ from picture to picture.
        labels: (pictures,) int64.
        origin: the file, package or repository they were read from.
        files: all that they were read from.
    """

    pixels: Sequence[NDArray[Any]] | NDArray[Any]
    labels: NDArray[np.int64]
    origin: str
    files: tuple[Path, ...] = ()

    def digest(self) -> str:
        """Return the sha256 of all pixels in order, then of the labels, little-endian."""
        content = hashlib.sha256()
        for picture in (*self.pixels, self.labels):
            content.update(picture.astype(picture.dtype.newbyteorder("<"), order="C").tobytes())
        return content.hexdigest()
