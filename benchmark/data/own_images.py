"""A folder of one's own images, labelled by sub-folder, or not at all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmark.data.catalogue import Split
from benchmark.data.formats.folders import ImageFiles, image_names
from benchmark.data.own import Halves, OwnSet, about, digest
from benchmark.errors import ProtocolError


@dataclass(frozen=True)
class OwnImages(OwnSet):
    """PNG and JPEG files of a folder.

    Attributes:
        folder: what the names are relative to.
        names: of the files, sorted.
        sums: sha256 of each file.
    """

    folder: Path = Path()
    names: tuple[str, ...] = ()
    sums: tuple[str, ...] = ()

    def read(self, split: Split) -> ImageFiles:
        """Return the files of a split; one that has changed since is refused when it is read."""
        rows = self.halves.rows(self.sums, split, str(self.folder))
        groups = [name.rpartition("/")[0] for name in self.names]
        labels = labels_of(groups, self.class_names)
        return ImageFiles(
            self.folder,
            [self.names[row] for row in rows],
            labels[rows],
            self.class_names,
            1.0,
            dict(zip(self.names, self.sums, strict=True)),
            "the protocol",
        )


def own_images(folder: Path, halves: Halves) -> OwnImages:
    """Return the images of a folder, or of its folders, each of which is a class.

    Raises:
        ProtocolError: no such folder, no images, or images in it and in its folders.
    """
    if not folder.is_dir():
        raise ProtocolError(f"{folder}: no such folder; wanted one of PNG or JPEG images")
    flat, nested = image_names(folder, nested=False), image_names(folder, nested=True)
    if flat and nested:
        raise ProtocolError(f"{folder}: images in it and in its folders; wanted either")
    names = flat or nested
    if not names:
        raise ProtocolError(f"{folder}: no image in it or its folders; wanted PNG or JPEG")
    sums = tuple(_sum(folder / name) for name in names)
    made = OwnImages(
        **about("image", str(folder)),
        class_names=class_names(name.rpartition("/")[0] for name in names),
        content=digest("".join(f"{n}\0{s}\0" for n, s in zip(names, sums, strict=True))),
        halves=halves,
        folder=folder,
        names=tuple(names),
        sums=sums,
    )
    made.read("test")  # whether it can be split
    return made


def class_names(groups: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the classes, sorted; of one alone there is an opposite.

    The gradient of a loss over a single class is zero, so images without labels, or of one label,
    are of the second of two classes, as the catalogue's faces are.
    """
    found = sorted({group or "image" for group in groups})
    return (f"not {found[0]}", found[0]) if len(found) == 1 else tuple(found)


def labels_of(groups: Sequence[str], names: tuple[str, ...]) -> NDArray[np.int64]:
    """Return the label of each group, its place among the class names."""
    return np.array([names.index(group or "image") for group in groups], np.int64)


def _sum(path: Path) -> str:
    try:
        return _sum_of(path, path.stat().st_mtime_ns, path.stat().st_size)
    except OSError as error:
        raise ProtocolError(f"{path}: {error.strerror}; wanted an image") from error


@lru_cache(maxsize=2**20)
def _sum_of(path: Path, _changed: int, _size: int) -> str:
    return digest(path.read_bytes())
