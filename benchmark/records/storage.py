"""Writing that survives a kill: whole appends, whole replacements."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmark.errors import RecordError


def append_text(path: Path, text: str) -> None:
    """Add lines to a file: all of them, or after an error none.

    A tail without its line's end, left by a kill, is cut off first: its trial is missing, and runs
    again. The caller holds the file's lock. The disk is not waited for, milliseconds a cell: a
    power failure takes the lines of the last seconds, and their trials run again.
    """
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            kept = _whole(file)
            file.truncate(kept)
            try:
                _write(file, text.encode())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(kept)
                raise


def _write(file: Any, data: bytes) -> None:  # noqa: ANN401  (an unbuffered binary file)
    left = memoryview(data)
    while left:
        left = left[file.write(left) :]


def _whole(file: Any) -> int:  # noqa: ANN401  (an unbuffered binary file)
    """Return the size of a file less what follows its last line's end."""
    size = int(file.seek(0, os.SEEK_END))
    if size:
        file.seek(size - 1)
        if file.read(1) == b"\n":
            return size
    file.seek(0)
    return int(file.read().rfind(b"\n")) + 1


def replace(path: Path, text: str) -> None:
    """Write a whole file so that a reader, or a kill, finds the old one or the new one."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def write_protocol(results: Path, name: str, content: dict[str, Any]) -> None:
    """Keep the frozen protocol beside its records, so that a board needs nothing else."""
    path = results / name / "protocol.json"
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        replace(path, text)


def check_writable(results: Path) -> None:
    """Raise RecordError, before any work, where a results folder could not be written."""
    there = next(place for place in [results, *results.absolute().parents] if place.exists())
    with reported(results):
        probe = there / f".{os.getpid()}.partial"
        probe.write_bytes(b"")
        probe.unlink()


@contextlib.contextmanager
def reported(path: Path) -> Iterator[None]:
    """Turn an error of the system into one line that names the file."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror or error}") from error
