"""Folders of images, one file each."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmark.data.formats.encoded import Encoded
from benchmark.errors import BenchmarkError

_SUFFIXES = (".jpeg", ".jpg", ".png")
_SUMS = "SHA256SUMS"


@dataclass(frozen=True)
class ImageFiles(Encoded):
    """Images in files of their own; a file with a digest is checked each time it is read.

    Attributes:
        folder: what the names are relative to.
        names: of the files.
        sums: sha256 by name.
        listed: what lists the sums.
    """

    folder: Path
    names: Sequence[str]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...]
    margin: float
    sums: Mapping[str, str]
    listed: str = _SUMS

    def content(self, row: int) -> tuple[bytes, str]:
        """Return an image file and its path."""
        path = self.folder / self.names[row]
        try:
            content = path.read_bytes()
        except OSError as error:
            raise BenchmarkError(f"{path}: {error.strerror}; wanted an image") from error
        found = hashlib.sha256(content).hexdigest()
        if found != (wanted := self.sums.get(self.names[row], found)):
            raise BenchmarkError(
                f"{path}: content has sha256 {found}, {self.listed} wants {wanted}"
            )
        return content, str(path)

    def files(self) -> Iterable[Path]:
        """Return every image file."""
        return (self.folder / name for name in self.names)

    def intact(self) -> bool | None:
        """Tell whether every file has the digest SHA256SUMS lists for it."""
        if not all(name in self.sums for name in self.names):
            return None
        try:
            return all(bool(self.content(row)) for row in range(len(self.names)))
        except BenchmarkError:
            return False


def image_names(folder: Path, *, nested: bool) -> list[str]:
    """Return the image files of a folder, or of its folders, in the order of their names."""
    if not nested:
        return sorted(name for name in os.listdir(folder) if _is_image(name))
    groups = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir())
    return [
        f"{group}/{name}" for group in groups for name in image_names(folder / group, nested=False)
    ]


def read_sums(folder: Path) -> dict[str, str]:
    """Return digests by file name, from a SHA256SUMS in a folder or in the one above it.

    Raises:
        BenchmarkError: a line is none of `sha256sum`'s.
    """
    sums: dict[str, str] = {}
    for base in (folder.parent, folder):
        path = base / _SUMS
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        for number, line in enumerate(lines, 1):
            digest, _, name = line.partition(" ")
            if len(digest) != 64 or not name:
                raise BenchmarkError(
                    f"{path}: line {number}: {line!r:.80}; wanted a sha256 and a file"
                )
            file = base / name.lstrip(" *")
            if file.is_relative_to(folder):
                sums[file.relative_to(folder).as_posix()] = digest
    return sums


def _is_image(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)
