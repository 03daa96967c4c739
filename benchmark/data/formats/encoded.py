"""Images that stay encoded in their files until a trial asks for them."""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from benchmark.errors import BenchmarkError


class Encoded(ABC):
    """One split as encoded colour images: labels are known, pictures are decoded when asked for.

    Attributes:
        labels: (images,) int64.
        class_names: by label, the same for both splits.
        margin: the shorter side after resizing, as a multiple of the side kept.
    """

    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    margin: float

    @abstractmethod
    def content(self, row: int) -> tuple[bytes, str]:
        """Return an encoded image, and where it lies; BenchmarkError where it is not whole."""

    @abstractmethod
    def files(self) -> Iterable[Path]:
        """Return the files that hold the split."""

    @abstractmethod
    def intact(self) -> bool | None:
        """Tell whether every file has the digest listed for it; None where none is listed."""

    def pixels(self, rows: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
        """Return images, (rows, size, size, 3); BenchmarkError where one does not decode."""
        made = np.empty((len(rows), size, size, 3), np.uint8)
        for place, row in enumerate(rows):
            made[place] = np.asarray(framed(decoded(*self.content(int(row))), size, self.margin))
        return made


def read_grey(path: Path) -> NDArray[np.uint8]:
    """Return the image of a file in grey, (height, width); BenchmarkError where it cannot be."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise BenchmarkError(f"{path}: {error.strerror}; wanted an image") from error
    return np.asarray(decoded(content, str(path), "L"))


def decoded(content: bytes, where: str, mode: str = "RGB") -> Image.Image:
    """Return an encoded image; BenchmarkError, saying where it lies, if it does not decode.

    Which decoder Pillow was built with may move a pixel of a JPEG by a grey level.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.convert(mode)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        said = "cannot identify it" if isinstance(error, UnidentifiedImageError) else error
        raise BenchmarkError(f"{where}: {said}; wanted an image that decodes") from error


def framed(image: Image.Image, size: int, margin: float) -> Image.Image:
    """Return the central size x size pixels of an image resized by Pillow's bicubic filter.

    The shorter side becomes round(margin * size) pixels, the longer one keeps the proportion,
    rounded; where the middle falls between two pixels, the crop is the upper left one.
    """
    side = round(margin * size)
    width, height = (round(length * side / min(image.size)) for length in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    return resized.crop((left, top, left + size, top + size))
