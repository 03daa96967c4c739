"""One file an attack in a protocol, `<protocol>/<attack>.jsonl`: reading it, adding to it.

Runners that meet on one file write in turn; what a file has gained since it was last read is read
alone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock
from pydantic import ValidationError

from benchmark.errors import RecordError
from benchmark.records import lines, schema1
from benchmark.records.lines import Headers, Line
from benchmark.records.schema import Record
from benchmark.records.storage import append_text, replace, reported


@dataclass
class Reading:
    """What a results file or folder held: the records, and each line that could not be read."""

    records: list[Record] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """`file:line: what is wrong`, in the order met."""


def file_of(results: Path, protocol: str, attack: str) -> Path:
    """Return the file of an attack's records in a protocol."""
    return results / protocol / f"{attack}.jsonl"


def files_in(results: Path) -> list[Path]:
    """Return every file of records of a results folder, those of the first form too.

    Raises:
        RecordError: no such folder.
    """
    if not results.is_dir():
        raise RecordError(f"{results}: no results folder here")
    return sorted([*results.glob("*/*.jsonl"), *results.glob("*/*/*.jsonl")])


def read_file(path: Path) -> Reading:
    """Read a file; a line that is no record is reported and the rest is read.

    Raises:
        RecordError: it cannot be read, or was written by a newer program.
    """
    return Reader(path).read()


def read_folder(results: Path) -> Reading:
    """Read every file of a results folder, in the order of their names."""
    found = Reading()
    for path in files_in(results):
        one = read_file(path)
        found.records += one.records
        found.damaged += one.damaged
    return found


class Reader:
    """Reads a file, and later what it has gained.

    Args:
        path: the file; one that is not there holds nothing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._forget()

    def _forget(self) -> None:
        self.headers = Headers()
        self._inode, self._offset, self._lines = -1, 0, 0
        self._early: list[tuple[int, str, Line]] = []  # trials that stand before their headers
        self._found = Reading()

    def read(self) -> Reading:
        """Return all that the file holds now.

        Raises:
            RecordError: it cannot be read, or was written by a newer program.
        """
        try:
            with self.path.open("rb") as file:
                inode = os.fstat(file.fileno()).st_ino
                if inode != self._inode or not self._goes_on(file):
                    self._forget()
                    self._inode = inode
                file.seek(self._offset)
                *whole, tail = file.read().split(b"\n")
        except FileNotFoundError:
            self._forget()
            return self._found
        except OSError as error:
            raise RecordError(f"{self.path}: cannot be read: {error.strerror}") from error
        for raw in whole:
            self._lines += 1
            self._offset += len(raw) + 1
            if raw.strip():
                with self._damage(self._lines):
                    self._take(json.loads(raw))
        early, self._early = self._early, []
        for number, cell, line in early:
            with self._damage(number):
                self._place(number, cell, line)
        damaged = [
            self._said(number, f"not a record: of no cell {cell!r} that is named here")
            for number, cell, _ in self._early
        ]
        if tail:
            damaged.append(self._said(self._lines + 1, "cut off before its end"))
        return Reading(self._found.records, [*self._found.damaged, *damaged])

    def _goes_on(self, file: BinaryIO) -> bool:
        """Tell whether a line still ends where reading stopped; else it was written over."""
        file.seek(max(self._offset - 1, 0))
        return self._offset == 0 or file.read(1) == b"\n"

    def _take(self, content: Any) -> None:  # noqa: ANN401  (whatever a line held)
        if not isinstance(content, dict):
            raise ValueError(f"wanted an object, got {type(content).__name__}")
        if "in" in content:
            cell = str(content.pop("in"))
            self._place(self._lines, cell, Line.model_validate(content))
        elif "schema" in content or "cell" in content:
            try:
                self.headers.take(content)
            except RecordError as error:
                raise RecordError(self._said(self._lines, str(error))) from None
        elif "protocol_digest" in content:
            self._found.records.append(schema1.read(content))
        else:
            raise ValueError("wanted a header or a trial")

    def _place(self, number: int, cell: str, line: Line) -> None:
        """Keep a trial under its headers, or until they come."""
        if (headers := self.headers.of(cell)) is None:
            self._early.append((number, cell, line))
        else:
            self._found.records.append(lines.decode(*headers, line))

    @contextmanager
    def _damage(self, number: int) -> Iterator[None]:
        """Keep what is wrong with a line, and go on."""
        try:
            yield
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            what = f"{where}: {first['msg']}" if where else first["msg"]
            self._found.damaged.append(self._said(number, f"not a record: {what}"))
        except (ValueError, KeyError, TypeError) as error:
            self._found.damaged.append(self._said(number, f"not a record: {error}"))

    def _said(self, number: int, what: str) -> str:
        return f"{self.path}:{number}: {what}"


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a file: all of them, or after an error none."""
    made = list(records)
    with locked(path):
        reader = _readers[path]
        reader.read()
        headers = reader.headers.runs.keys() | reader.headers.cells.keys()
        append_text(path, lines.encode(made, headers))


def rewrite(path: Path, chosen: Callable[[list[Record]], Iterable[Record]]) -> None:
    """Replace a file's records by those chosen of them, by defense, seed and trial.

    A file in which a line could not be read is left as it is.
    """
    with locked(path):
        reading = read_file(path)
        if reading.damaged:
            return
        kept = sorted(chosen(reading.records), key=_place_in_file)
        if len(kept) < len(reading.records):
            replace(path, lines.encode(kept))


def known(path: Path) -> Reading:
    """Return what a file holds, of which only what is new is read."""
    return _readers[path].read()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers from the records of a protocol, for as long as one write takes."""
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.parent / ".records.lock"):
            yield


def _place_in_file(record: Record) -> tuple[str, int, int]:
    return record.defense, record.seed, -1 if record.trial is None else record.trial


class _Readers(dict[Path, Reader]):
    def __missing__(self, path: Path) -> Reader:
        self[path] = Reader(path)
        return self[path]


_readers = _Readers()
"""Of the files that this process has read; each goes on where it stopped."""
