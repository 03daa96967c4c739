"""Data in a local folder, laid out as DIR/mnist, DIR/cifar10, DIR/faces."""

from __future__ import annotations

import contextlib
import gzip
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmark.data.catalogue import Entry
from benchmark.data.pictures import Pictures
from benchmark.data.places import mirror_file
from benchmark.errors import BenchmarkError


def read_mnist(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return MNIST from its gzipped idx files, (28, 28) uint8."""
    stem = "train" if split == "train" else "t10k"
    pixels = mirror_file(found.name, f"mnist/{stem}-images-idx3-ubyte.gz", mirror)
    labels = mirror_file(found.name, f"mnist/{stem}-labels-idx1-ubyte.gz", mirror)
    return Pictures(_idx(pixels), _idx(labels).astype(np.int64), str(pixels))


def read_cifar10(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return the exact part of CIFAR-10, (32, 32, 3) uint8; the lossy JPEG files are not used."""
    path = mirror_file(found.name, f"cifar10/{split}_lossless.npz", mirror)
    return Pictures(*_npz(path), str(path))


def read_orl_faces(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return the ORL faces, the central (92, 92) of (112, 92) uint8, by split of each ten."""
    path = mirror_file(found.name, "faces/orl_faces.npz", mirror)
    pixels, labels = _npz(path)
    chosen = (np.arange(len(labels)) % 10 < 5) == (split == "train")
    return Pictures(pixels[chosen, 10:102], labels[chosen], str(path))


def _idx(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of a gzipped idx file in the shape its header gives."""
    with _reported(path, "a gzipped idx file of unsigned bytes"):
        content = gzip.decompress(path.read_bytes())
        if content[:3] != b"\0\0\x08":
            raise ValueError(f"header {content[:3]!r}")
        dimensions = content[3]
        shape = np.frombuffer(content, ">i4", dimensions, offset=4)
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def _npz(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the arrays `images` and `labels` of an npz file."""
    with _reported(path, "an npz file of images and labels"), np.load(path) as arrays:
        return arrays["images"], arrays["labels"].astype(np.int64)


@contextlib.contextmanager
def _reported(path: Path, wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ValueError, LookupError, zlib.error, zipfile.BadZipFile) as error:
        raise BenchmarkError(f"{path}: {error}; wanted {wanted}") from error
