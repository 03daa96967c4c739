"""The idx format of MNIST: a header, then bytes."""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from benchmark.errors import BenchmarkError

_MOST = 4  # dimensions


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Return the bytes of an idx file, gzipped or not, in the shape its header gives.

    One that is not gzipped stays on the disk and is read as it is used.

    Raises:
        BenchmarkError: with the offset, in the unpacked file, up to which it was read.
    """
    packed = path.suffix == ".gz"
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            try:
                shape = _shape(cast(BinaryIO, file))
                wanted, start = math.prod(shape), file.tell()
                content = file.read(wanted + 1) if packed else b""
                had = len(content) if packed else path.stat().st_size - start
                if had != wanted:
                    raise ValueError(f"{had} bytes follow, the header wants {wanted}")
            except (OSError, EOFError, ValueError, zlib.error) as error:
                raise BenchmarkError(
                    f"{path}: offset {file.tell()}: {error}; wanted an idx file of unsigned bytes"
                ) from error
    except OSError as error:
        raise BenchmarkError(f"{path}: {error.strerror}; wanted an idx file") from error
    if packed:
        return np.frombuffer(content, np.uint8).reshape(shape)
    return np.memmap(path, np.uint8, "r", start, shape)


def _shape(file: BinaryIO) -> tuple[int, ...]:
    """Read the header: two zeros, the type, the number of dimensions, the dimensions."""
    start = file.read(4)
    if start[:3] != b"\0\0\x08" or len(start) < 4:
        raise ValueError(f"header {start!r}")
    if start[3] > _MOST:
        raise ValueError(f"{start[3]} dimensions")
    dimensions = file.read(4 * start[3])
    if len(dimensions) < 4 * start[3] or not dimensions:
        raise ValueError("the header ends early")
    return tuple(np.frombuffer(dimensions, ">u4").tolist())
