"""Images of a data set, whichever tier supplies them, ready for a victim."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from benchmark.contract import DataStatistics
from benchmark.data.catalogue import Entry, Split, known
from benchmark.data.embedded import read_digits, read_faces, read_photographs
from benchmark.data.formats.encoded import Encoded
from benchmark.data.hub import read_hub
from benchmark.data.lazy import LazyImages
from benchmark.data.mirror import (
    read_cifar10,
    read_imagenet,
    read_mnist,
    read_ms_celeb_1m,
    read_orl_faces,
)
from benchmark.data.own import OwnSet
from benchmark.data.pictures import Pictures
from benchmark.data.places import check_digest, mirror_folder, reading
from benchmark.errors import DataUnavailable, ProtocolError

Reader = Callable[[Entry, str, Path | None], Pictures | Encoded]

READERS: dict[str, tuple[Reader, ...]] = {
    "digits": (read_digits,),
    "photographs": (read_photographs,),
    "faces": (read_faces,),
    "mnist": (read_mnist, read_hub),
    "cifar10": (read_cifar10, read_hub),
    "orl_faces": (read_orl_faces,),
    "imagenet": (read_imagenet,),
    "ms_celeb_1m": (read_ms_celeb_1m,),
}
"""What reads a set from each of its tiers, in the order of its entry."""

_HELD = 2**28  # bytes of float32 images up to which a split is kept as one tensor
_GRID = {32: 8, 224: 2}  # most crops along a side of a photograph, by side of the crop


@dataclass(frozen=True)
class ImageSet:
    """One split of a data set.

    Attributes:
        name: in the catalogue.
        split: `train` is public, `test` is private.
        images: (N, channel, height, width) float32 in [0, 1]; of a large split, and of one that
            lies in encoded files, each index makes the images anew.
        labels: (N,) int64, indices of class_names.
        class_names: the same for both splits.
    """

    name: str
    split: Split
    images: Tensor | LazyImages
    labels: Tensor
    class_names: tuple[str, ...]

    @cached_property
    def statistics(self) -> DataStatistics:
        """Mean image, and mean and standard deviation of each channel over all pixels.

        Where images are made when indexed, of at most 1000 images at equal distances.
        """
        if isinstance(self.images, LazyImages):
            return self.images.statistics()
        std, mean = torch.std_mean(self.images, dim=(0, 2, 3), correction=0)
        return DataStatistics(mean_image=self.images.mean(0), mean=mean, std=std)


def load_images(name: str | Entry, split: Split, size: int, mirror: Path | None = None) -> ImageSet:
    """Return a split with images of size x size pixels, kept for the next call.

    Pictures of another native side are resized (bilinear, antialiased); crops of photographs are
    not. Images in files of their own are resized as `formats.encoded.framed` says. A split of
    more than 256 MiB of images is resized when indexed, like those that are decoded then.

    Args:
        name: in the catalogue; or the entry of a set that is in none.
        split: `train` or `test`.
        size: side in pixels.
        mirror: folder of local copies; else the environment's GRADLEAK_DATA.

    Raises:
        ProtocolError: no such image set, split or size.
        DataUnavailable: no tier can supply it here.
        BenchmarkError: the content is not what the catalogue says.
    """
    found = known(name, "image", split)
    if size < 1 or (found.crops and size not in found.crops):
        wanted = " or ".join(map(str, found.crops)) or "at least 1"
        raise ProtocolError(
            f"data set {found.name!r} cannot be had at {size} pixels; wanted {wanted}"
        )
    return _load(found, split, size, mirror_folder(mirror))


@lru_cache(maxsize=16)
def _load(found: Entry, split: Split, size: int, mirror: Path | None) -> ImageSet:
    with reading(found):
        pictures = _read(found, split, mirror)
    names, labels = found.class_names, torch.from_numpy(pictures.labels)
    if isinstance(pictures, Encoded):
        images = LazyImages(partial(_decoded, pictures, size), (len(labels), 3, size, size))
        return ImageSet(found.name, split, images, labels, pictures.class_names)
    check_digest(found, split, pictures.digest(), pictures.origin)
    if found.crops:
        pictures = _crop(pictures, size)
        labels = torch.from_numpy(pictures.labels)
    pixels = np.asarray(pictures.pixels)
    channels = pixels.shape[3] if pixels.ndim == 4 else 1
    images = LazyImages(partial(_resized, pixels, size), (len(labels), channels, size, size))
    held = images[:] if 4 * images.shape.numel() <= _HELD else images
    return ImageSet(found.name, split, held, labels, names)


def _decoded(pictures: Encoded, size: int, rows: NDArray[np.int64]) -> Tensor:
    """Return images read and decoded now."""
    return _to_tensor(pictures.pixels(rows, size))


def _resized(pixels: NDArray[Any], size: int, rows: NDArray[np.int64]) -> Tensor:
    """Return images resized now."""
    images = _to_tensor(pixels[rows])
    if images.shape[-2:] != (size, size):
        images = functional.interpolate(images, (size, size), mode="bilinear", antialias=True)
    return images.clamp_(0, 1)


def _read(found: Entry, split: Split, mirror: Path | None) -> Pictures | Encoded:
    """Return the pictures from the first tier that has them."""
    if isinstance(found, OwnSet):
        return found.read(split)
    missing: list[DataUnavailable] = []
    for read in READERS[found.name]:
        try:
            return read(found, split, mirror)
        except DataUnavailable as error:
            missing.append(error)
    tried = [place for error in missing for place in error.tried]
    raise DataUnavailable(found.name, tried, " or ".join(error.command for error in missing))


def _crop(pictures: Pictures, side: int) -> Pictures:
    """Return disjoint square crops on a grid in the middle of each picture, row by row."""
    pixels, labels = [], []
    for picture, label in zip(pictures.pixels, pictures.labels, strict=True):
        height, width = picture.shape[:2]
        rows, columns = min(height // side, _GRID[side]), min(width // side, _GRID[side])
        top, left = (height - rows * side) // 2, (width - columns * side) // 2
        for row, column in product(range(rows), range(columns)):
            y, x = top + row * side, left + column * side
            pixels.append(picture[y : y + side, x : x + side])
            labels.append(label)
    return Pictures(pixels, np.array(labels, np.int64), pictures.origin)


def _to_tensor(pixels: NDArray[Any]) -> Tensor:
    """Return (N, H, W) or (N, H, W, C) pictures as (N, C, H, W) float32 in [0, 1]."""
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    scale = 255 if pixels.dtype == np.uint8 else 1
    channels_first = torch.tensor(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))
    return channels_first.to(torch.float32).div_(scale)
