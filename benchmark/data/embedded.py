"""Data inside our dependencies; nothing here touches the network."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import numpy as np
from PIL import Image

from benchmark.data.catalogue import Entry
from benchmark.data.pictures import Pictures
from benchmark.data.places import bundled_file

_FILES = {
    "astronaut": ("skimage", "data/astronaut.png"),
    "chelsea": ("skimage", "data/chelsea.png"),
    "coffee": ("skimage", "data/coffee.png"),
    "rocket": ("skimage", "data/rocket.jpg"),
    "china": ("sklearn", "datasets/images/china.jpg"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "retina": ("skimage", "data/retina.jpg"),
    "hubble_deep_field": ("skimage", "data/hubble_deep_field.jpg"),
    "immunohistochemistry": ("skimage", "data/ihc.png"),
    "stereo_motorcycle": ("skimage", "data/motorcycle_left.png"),
}


def read_digits(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return scikit-learn's digits, (8, 8) float32 in sixteenths."""
    # The file behind load_digits; importing sklearn.datasets takes seconds.
    path = bundled_file(found, "sklearn", "datasets/data/digits.csv.gz")
    part = slice(1000) if split == "train" else slice(1000, None)
    rows = np.loadtxt(path, delimiter=",")[part]  # 64 pixels in 0 to 16, label
    pixels = (rows[:, :-1].reshape(-1, 8, 8) / 16).astype(np.float32)
    return Pictures(pixels, rows[:, -1].astype(np.int64), _origin("scikit-learn"), (path,))


def read_faces(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return the faces of scikit-image's lfw_subset, (25, 25) float32."""
    path = bundled_file(found, "skimage", "data/lfw_subset.npy")
    pixels = np.load(path)[slice(50) if split == "train" else slice(50, 100)].astype(np.float32)
    labels = np.ones(len(pixels), np.int64)
    return Pictures(pixels, labels, _origin("scikit-image"), (path,))


def read_photographs(found: Entry, split: str, mirror: Path | None) -> Pictures:
    """Return whole photographs, (height, width, 3) uint8; the first six of the classes are test."""
    test = found.size["test"]
    labels = range(test) if split == "test" else range(test, len(found.class_names))
    paths = tuple(bundled_file(found, *_FILES[found.class_names[label]]) for label in labels)
    pixels = []
    for path in paths:
        with Image.open(path) as image:
            pixels.append(np.asarray(image.convert("RGB")))
    origin = f"{_origin('scikit-image')}, {_origin('scikit-learn')}, {_origin('pillow')}"
    return Pictures(pixels, np.array(labels, np.int64), origin, paths)


def _origin(package: str) -> str:
    return f"{package} {version(package)}"
