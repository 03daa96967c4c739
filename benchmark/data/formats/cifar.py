"""CIFAR-10 as its authors publish it: batches pickled for Python, and batches of plain bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy._core.multiarray import _reconstruct  # the name that pickled arrays are rebuilt by
from numpy.typing import NDArray

from benchmark.errors import BenchmarkError

_RECORD = 1 + 3 * 32 * 32  # bytes of an image in a plain batch: the label, then red, green, blue
_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): lambda text, encoding: text.encode(encoding),
}


class _Arrays(pickle.Unpickler):
    """Rebuilds numpy arrays; a pickle that names anything else is refused, and nothing runs."""

    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        """Return what a pickled array is rebuilt by."""
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no array needs")
        return _ALLOWED[module, name]


def read_pickled(path: Path, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the first rows of a batch for Python, (rows, 32, 32, 3), and their labels.

    Raises:
        BenchmarkError: it is cut off, holds something else, or would run code.
    """
    wanted = f"a pickled batch of at least {rows} images"
    try:
        with path.open("rb") as file:
            try:
                batch = _Arrays(file, encoding="bytes").load()
                pixels, labels = batch[b"data"], np.array(batch[b"labels"], np.int64)
                if pixels.dtype != np.uint8 or pixels.shape != (len(labels), _RECORD - 1):
                    raise ValueError(f"data {pixels.shape} {pixels.dtype}, {len(labels)} labels")
                if len(labels) < rows:
                    raise ValueError(f"{len(labels)} images")
            except Exception as error:  # a broken pickle raises anything
                said = f"{type(error).__name__}: {error}".splitlines()[0]
                raise BenchmarkError(
                    f"{path}: offset {file.tell()}: {said}; wanted {wanted}"
                ) from error
    except OSError as error:
        raise BenchmarkError(f"{path}: {error.strerror}; wanted {wanted}") from error
    return _pictures(pixels[:rows]), labels[:rows]


def read_binary(path: Path, rows: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the first rows of a batch of plain bytes, (rows, 32, 32, 3), and their labels.

    Raises:
        BenchmarkError: it is cut off, or no such batch.
    """
    wanted = f"at least {rows} records of {_RECORD} bytes"
    try:
        size = path.stat().st_size
        content = np.fromfile(path, np.uint8, min(size, rows * _RECORD))
    except OSError as error:
        raise BenchmarkError(f"{path}: {error.strerror}; wanted {wanted}") from error
    if size % _RECORD or size < rows * _RECORD:
        raise BenchmarkError(f"{path}: offset {size}: the file ends; wanted {wanted}")
    records = content.reshape(rows, _RECORD)
    if (wrong := np.flatnonzero(records[:, 0] > 9)).size:
        label, offset = records[wrong[0], 0], wrong[0] * _RECORD
        raise BenchmarkError(f"{path}: offset {offset}: label {label}; wanted 0 to 9")
    return _pictures(records[:, 1:]), records[:, 0].astype(np.int64)


def _pictures(planes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return rows of red, green and blue planes as (rows, 32, 32, 3)."""
    return planes.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
