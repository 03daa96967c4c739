"""RecordIO, the format in which InsightFace publishes faces, read without mxnet.

A `.rec` file is records at multiples of four bytes: a magic number; a word whose upper three bits
say whether the record goes on (0 whole, 1 first part, 2 between, 3 last) and whose lower 29 are
the length; the content; zeros up to the next multiple of four. Where the content itself held the
magic number it was cut there, so parts are joined by it. An image's content is a header (number
of further labels, label, two ids), the further labels, a JPEG. A `.idx` file lists, a line each,
the key and the offset of every record.

InsightFace's record 0 is no image: its two labels are the first and the last but one key of the
identities, whose records give the first and the last but one key of their images. Images are
the keys from 1 to the first identity. In a file without a record 0 of this kind all are images.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmark.data.formats.encoded import Encoded
from benchmark.errors import BenchmarkError

_MAGIC = 0xCED7230A
_HEADER = 24  # bytes: uint32 further labels, float32 label, uint64 id, uint64 id
_IDENTITIES = 2**24  # and more no file names; also where float32 stops to count
_FLAG, _LABEL, _LABELS = 2, 3, 8  # words from the start of a record


class RecordFile:
    """A `.rec` file with its index; of the records only keys and offsets are held.

    Attributes:
        path: the `.rec` file.
        keys: (records,) int64, ascending.
        offsets: (records,) int64, in bytes.

    Raises:
        BenchmarkError: the index is malformed, or points outside the file.
    """

    def __init__(self, path: Path, index: Path) -> None:
        try:
            table = np.loadtxt(index, np.int64, ndmin=2)
            self._words = np.memmap(path, "<u4", "r", shape=(path.stat().st_size // 4,))
        except (OSError, ValueError) as error:
            raise BenchmarkError(f"{index}: {error}; wanted lines of key and offset") from error
        if table.shape[1:] != (2,):
            raise BenchmarkError(f"{index}: {table.shape[1]} columns; wanted key and offset")
        self.path = path
        self.keys, self.offsets = table[table[:, 0].argsort(kind="stable")].T
        outside = (self.offsets < 0) | (self.offsets > self._words.nbytes - 8) | self.offsets % 4
        if (wrong := np.flatnonzero(outside)).size:
            raise self._broken(self.offsets[wrong[0]], f"key {self.keys[wrong[0]]} points here")

    def rows(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the rows of keys; BenchmarkError where the index lacks one."""
        rows = np.searchsorted(self.keys, keys).clip(max=len(self.keys) - 1)
        if (wrong := np.flatnonzero(self.keys[rows] != keys)).size:
            raise BenchmarkError(f"{self.path}: its index has no key {keys[wrong[0]]}")
        return rows

    def labels(self, rows: NDArray[np.int64], count: int) -> NDArray[np.float32]:
        """Return the first labels of records, (rows, count); BenchmarkError where there are fewer.

        Only the headers are read.
        """
        starts = self.offsets[rows] // 4
        if (wrong := np.flatnonzero(self._words[starts] != _MAGIC)).size:
            raise self._broken(self.offsets[rows[wrong[0]]], "no record begins here")
        further = self._headers(starts + _FLAG)
        if (wrong := np.flatnonzero(np.maximum(further, 1) < count)).size:
            raise self._broken(self.offsets[rows[wrong[0]]], f"{further[wrong[0]]} labels")
        first = np.where(further > 0, starts + _LABELS, starts + _LABEL)
        return self._headers(first[:, None] + np.arange(count)).view("<f4")

    def content(self, row: int) -> bytes:
        """Return what a record holds behind its labels; BenchmarkError where it is not whole."""
        offset, parts, going_on = int(self.offsets[row]), list[bytes](), True
        with self.path.open("rb") as file:
            while going_on:
                file.seek(offset)
                magic, word = np.frombuffer(file.read(8).ljust(8, b"\0"), "<u4").tolist()
                flag, length = word >> 29, word & 0x1FFFFFFF
                if magic != _MAGIC or flag not in ((2, 3) if parts else (0, 1)):
                    raise self._broken(offset, f"{magic:#010x} and flag {flag}")
                parts.append(file.read(length))
                if len(parts[-1]) < length:
                    raise self._broken(offset, f"the file ends within its {length} bytes")
                # cuts are at multiples of four, so that no zeros follow a part before one
                offset, going_on = offset + 8 + length, flag in (1, 2)
        joined = _MAGIC.to_bytes(4, "little").join(parts)
        return joined[_HEADER + 4 * int.from_bytes(joined[:4], "little") :]

    def where(self, row: int) -> str:
        """Return file and offset of a record, for an error."""
        return f"{self.path}: offset {self.offsets[row]}"

    def _headers(self, words: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return words of the file; those past its end are zero."""
        found = self._words[words.clip(max=len(self._words) - 1)]
        return np.where(words < len(self._words), found, 0).astype("<u4")

    def _broken(self, offset: int, said: str) -> BenchmarkError:
        size = self.path.stat().st_size
        return BenchmarkError(
            f"{self.path}: offset {offset}: {said}; wanted a whole record with the magic "
            f"{_MAGIC:#x} within {size} bytes"
        )


@dataclass(frozen=True)
class RecordImages(Encoded):
    """Images in a RecordIO file.

    Attributes:
        records: the file.
        rows: the images' rows in its index.
    """

    records: RecordFile
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] = field(repr=False)
    margin: float

    def content(self, row: int) -> tuple[bytes, str]:
        """Return an image's JPEG, and the file and the offset of its record."""
        place = int(self.rows[row])
        return self.records.content(place), self.records.where(place)

    def files(self) -> Iterable[Path]:
        """Return the `.rec` file and its index."""
        return (self.records.path, self.records.path.with_suffix(".idx"))

    def intact(self) -> bool | None:
        """Return None: nothing lists a digest."""
        return None


def identities(records: RecordFile) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Return the rows of all images, the identity of each, and the number of identities.

    Raises:
        BenchmarkError: identities and images do not match, or a label is no whole number.
    """
    everything = np.arange(len(records.keys))
    if not _begins_with_a_table(records):
        named = records.labels(everything, 1)[:, 0]
        labels = named.astype(np.int64)
        whole = len(labels) and (labels == named).all()
        if not whole or labels.min() < 0 or labels.max() >= _IDENTITIES:
            raise BenchmarkError(f"{records.path}: a label is no identity; wanted whole numbers")
        return everything, labels, int(labels.max()) + 1
    first, end = records.labels(everything[:1], 2)[0].astype(np.int64)
    if max(first, end - first) > len(records.keys):
        raise BenchmarkError(
            f"{records.path}: record 0 says {first - 1} images of {end - first} identities; its "
            f"index has {len(records.keys)} keys"
        )
    people = records.labels(records.rows(np.arange(first, end)), 2).astype(np.int64)
    counts = people[:, 1] - people[:, 0]
    if (counts < 0).any() or counts.sum() != first - 1:
        raise BenchmarkError(
            f"{records.path}: {len(people)} identities hold {counts.sum()} images; record 0 "
            f"says {first - 1}"
        )
    # the keys of each identity's images: its first, and from there one by one
    within = np.arange(first - 1) - np.repeat(counts.cumsum() - counts, counts)
    keys = np.repeat(people[:, 0], counts) + within
    return records.rows(keys), np.repeat(np.arange(len(people)), counts), len(people)


def _begins_with_a_table(records: RecordFile) -> bool:
    """Tell whether record 0 lists identities."""
    if not len(records.keys) or records.keys[0] != 0:
        return False
    try:
        first, end = records.labels(np.zeros(1, np.int64), 2)[0]
    except BenchmarkError:  # fewer than two labels
        return False
    return bool(0 < first <= end)
