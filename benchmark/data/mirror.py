"""Data in a local folder: DIR/mnist, DIR/cifar10, DIR/faces, DIR/imagenet, DIR/ms_celeb_1m."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmark.data.catalogue import Entry
from benchmark.data.formats.cifar import read_binary, read_pickled
from benchmark.data.formats.encoded import Encoded, read_grey
from benchmark.data.formats.folders import ImageFiles, image_names, read_sums
from benchmark.data.formats.idx import read_idx
from benchmark.data.formats.recordio import RecordFile, RecordImages, identities
from benchmark.data.pictures import Pictures
from benchmark.data.places import bundled_file, mirror_place
from benchmark.errors import BenchmarkError, DataUnavailable

_PUBLIC = 5  # every fifth image, or identity, is public where no official split suits
# The exact part of CIFAR-10 that the catalogue pins: the first rows of each batch.
_BATCHES = {
    "train": {"data_batch_1": 4000} | {f"data_batch_{n}": 1017 for n in range(2, 6)},
    "test": {"test_batch": 1017},
}


def read_mnist(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return MNIST from its idx files, gzipped or not, (28, 28) uint8."""
    stem = "train" if split == "train" else "t10k"
    paths = [
        mirror_place(found.name, mirror, f"mnist/{stem}-{part}.gz", f"mnist/{stem}-{part}")
        for part in ("images-idx3-ubyte", "labels-idx1-ubyte")
    ]
    pixels, labels = map(read_idx, paths)
    if pixels.ndim != 3 or labels.shape != pixels.shape[:1]:
        raise BenchmarkError(
            f"{paths[0]}: {pixels.shape} and labels {labels.shape}; wanted a label an image"
        )
    return Pictures(pixels, labels.astype(np.int64), str(paths[0]), tuple(paths))


def read_cifar10(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return the exact part of CIFAR-10, (32, 32, 3) uint8, from the first form that is there.

    The mirror's npz file, the batches pickled for Python, the batches of plain bytes; its files
    of lossy JPEG are not used.
    """
    rows, first = _BATCHES[split], next(iter(_BATCHES[split]))
    path = mirror_place(
        found.name,
        mirror,
        f"cifar10/{split}_lossless.npz",
        f"cifar10/cifar-10-batches-py/{first}",
        f"cifar10/cifar-10-batches-bin/{first}.bin",
    )
    if path.suffix == ".npz":
        return Pictures(*_npz(path), str(path), (path,))
    read = read_binary if path.suffix else read_pickled
    paths = tuple(path.with_name(batch + path.suffix) for batch in rows)
    parts = [read(part, count) for part, count in zip(paths, rows.values(), strict=True)]
    pixels, labels = (np.concatenate(each) for each in zip(*parts, strict=True))
    return Pictures(pixels, labels, str(path.parent), paths)


def read_orl_faces(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return the ORL faces, the central (92, 92) of (112, 92) uint8, by split of each ten.

    From one npz file, or from the laboratory's own s1/1.pgm to s40/10.pgm.
    """
    path = mirror_place(found.name, mirror, "faces/orl_faces.npz", "faces/s1")
    if path.suffix == ".npz":
        pixels, labels = _npz(path)
        files: tuple[Path, ...] = (path,)
    else:
        people = [path.with_name(person) for person in found.class_names]
        files = tuple(person / f"{number}.pgm" for person in people for number in range(1, 11))
        pixels, labels = np.stack([read_grey(file) for file in files]), np.repeat(range(40), 10)
    chosen = (np.arange(len(labels)) % 10 < 5) == (split == "train")
    return Pictures(pixels[chosen, 10:102], labels[chosen], str(path), files)


def read_imagenet(found: Entry, split: str, mirror: Path | None) -> Encoded:
    """Return ImageNet from val/<wnid>/*.JPEG, or from images/<wnid>_*.JPEG.

    The label is the rank of the class among the 1000 wnids, as torchvision and timm count them.

    Raises:
        BenchmarkError: a file's class is none of the 1000.
    """
    folder = mirror_place(found.name, mirror, "imagenet/val", "imagenet/images")
    names = _some(found, folder, image_names(folder, nested=folder.name == "val"))
    wnids = bundled_file(found, "timm", "data/_info/imagenet_synsets.txt").read_text().split()
    rank = {wnid: label for label, wnid in enumerate(wnids)}
    labels = []
    for name in names:
        wnid = re.match(r"n\d{8}", name)
        if wnid is None or wnid[0] not in rank:
            raise BenchmarkError(f"{folder / name}: no ImageNet class; wanted n01440764 or such")
        labels.append(rank[wnid[0]])
    public = np.arange(len(names)) % _PUBLIC == 0
    rows = np.flatnonzero(public if split == "train" else ~public)
    return ImageFiles(
        folder,
        [names[row] for row in rows],
        np.array(labels, np.int64)[rows],
        tuple(wnids),
        256 / 224,
        read_sums(folder),
    )


def read_ms_celeb_1m(found: Entry, split: str, mirror: Path | None) -> Encoded:
    """Return MS-Celeb-1M from InsightFace's train.rec and train.idx, or from <identity>/*.jpg."""
    path = mirror_place(found.name, mirror, "ms_celeb_1m/train.rec", "ms_celeb_1m")
    if path.name == "train.rec":
        index = mirror_place(found.name, mirror, "ms_celeb_1m/train.idx")
        records = RecordFile(path, index)
        places, labels, people = identities(records)
        rows = np.flatnonzero((labels % _PUBLIC == 0) == (split == "train"))
        named = tuple(map(str, range(people)))
        return RecordImages(records, places[rows], labels[rows], named, 1.0)
    names = _some(found, path, image_names(path, nested=True))
    folders, labels = np.unique([name.split("/")[0] for name in names], return_inverse=True)
    rows = np.flatnonzero((labels % _PUBLIC == 0) == (split == "train"))
    chosen = [names[row] for row in rows]
    return ImageFiles(path, chosen, labels[rows], tuple(folders.tolist()), 1.0, read_sums(path))


def _some(found: Entry, folder: Path, names: list[str]) -> list[str]:
    """Return the names where there is one; DataUnavailable where the folder holds no image."""
    if not names:
        raise DataUnavailable(found.name, [f"{folder} (no image)"], found.access)
    return names


def _npz(path: Path) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the arrays `images` and `labels` of an npz file."""
    try:
        with np.load(path) as arrays:
            return arrays["images"], arrays["labels"].astype(np.int64)
    except (OSError, EOFError, ValueError, LookupError, zlib.error, zipfile.BadZipFile) as error:
        raise BenchmarkError(f"{path}: {error}; wanted an npz file of images and labels") from error
