"""One JSON line a trial: a reading that survives damage and a writing that survives a kill.

A results folder holds `<protocol>/<defense>/<attack>.jsonl` and `<protocol>/protocol.json`, the
frozen protocol that the records were made by.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmark.errors import RecordError
from benchmark.metrics import Excerpt as Excerpt  # read from here too, as a part of a record

Status = Literal["completed", "failed", "timed_out", "not_applicable", "unavailable"]
Scalar = bool | int | float | str | None


class Provenance(BaseModel):
    """Where a record comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str | None
    """Commit of the repository the code ran from; None outside one."""
    dirty: bool | None
    """Whether that checkout had changes outside its results; None outside a repository."""
    versions: dict[str, str]
    """Library versions: gradleak, python, torch, timm, numpy."""
    hardware: str
    """Processor or GPU, and the number of threads."""


class Record(BaseModel):
    """One trial of one cell; `trial` is None where the whole cell has one verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: str
    protocol_digest: str
    defense: str
    defense_arguments: dict[str, Scalar]
    defense_digest: str
    attack: str
    attack_arguments: dict[str, Scalar]
    attack_digest: str
    control: bool
    threat: str
    seed: int
    trial: int | None
    status: Status
    reason: str | None
    metrics: dict[str, float | None]
    """Name to number; None where the metric is unavailable or the cell was not run. A failed or
    timed-out trial carries the scores of the prior-only reconstruction."""
    seconds: float | None
    """The attack's own wall-clock seconds on this trial."""
    gradient_evaluations: int | None
    peak_bytes: int | None
    """The attack's peak memory above its start, over the stack the trial ran in."""
    provenance: Provenance
    excerpt: Excerpt | None = None
    """Of text, what a reader is shown; absent from the line where there is none."""

    def line(self) -> str:
        """Return the record as one line of JSON, without the line's end."""
        absent = {"excerpt"} if self.excerpt is None else None
        content = self.model_dump(exclude=absent)
        return json.dumps(content, separators=(",", ":"), allow_nan=False)


@dataclass
class Reading:
    """What a results file or folder held: the records, and each line that could not be read."""

    records: list[Record] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)
    """`file:line: what is wrong`, in the order met."""


def cell_path(results: Path, protocol: str, defense: str, attack: str) -> Path:
    """Return the file of one cell's records."""
    return results / protocol / defense / f"{attack}.jsonl"


def read_file(path: Path) -> Reading:
    """Read one cell's file; a line that is no record is reported and the rest is read."""
    reading = Reading()
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return reading
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror}") from error
    *lines, tail = data.split(b"\n")
    for number, raw in enumerate(lines, start=1):
        if not raw.strip():
            continue
        try:
            reading.records.append(Record.model_validate_json(raw))
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"])
            what = f"{where}: {first['msg']}" if where else first["msg"]
            reading.damaged.append(f"{path}:{number}: not a record: {what}")
    if tail:
        reading.damaged.append(f"{path}:{len(lines) + 1}: cut off before its end")
    return reading


def read_folder(results: Path) -> Reading:
    """Read every cell's file of a results folder, in the order of their names."""
    if not results.is_dir():
        raise RecordError(f"{results}: no results folder here")
    reading = Reading()
    for path in sorted(results.glob("*/*/*.jsonl")):
        one = read_file(path)
        reading.records += one.records
        reading.damaged += one.damaged
    return reading


def append(path: Path, records: Iterable[Record]) -> None:
    """Add records to a cell's file: all of them, or after an error none.

    The caller holds the lock of the cell. A tail left by a kill (no line end) is cut off first:
    its trial counts as missing and runs again.
    """
    text = "".join(record.line() + "\n" for record in records).encode()
    with _reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab+", buffering=0) as file:
            file.seek(0)
            kept = file.read().rfind(b"\n") + 1
            file.truncate(kept)
            try:
                left = memoryview(text)
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError:
                with contextlib.suppress(OSError):
                    file.truncate(kept)
                raise


def replace(path: Path, text: str) -> None:
    """Write a whole file so that a reader, or a kill, finds the old one or the new one."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with _reported(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with partial.open("w", encoding="utf-8", newline="\n") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)


def rewrite(path: Path, records: Iterable[Record]) -> None:
    """Replace a cell's file by these records, by seed and trial."""
    ordered = sorted(records, key=lambda r: (r.seed, -1 if r.trial is None else r.trial))
    replace(path, "".join(record.line() + "\n" for record in ordered))


def write_protocol(results: Path, name: str, content: dict[str, Any]) -> None:
    """Keep the frozen protocol beside its records, so that a board needs nothing else."""
    path = results / name / "protocol.json"
    text = json.dumps(content, indent=2, sort_keys=True) + "\n"
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        replace(path, text)


def check_writable(results: Path) -> None:
    """Raise RecordError, before any work, where a results folder could not be written."""
    there = next(place for place in [results, *results.absolute().parents] if place.exists())
    with _reported(results):
        probe = there / f".{os.getpid()}.partial"
        probe.write_bytes(b"")
        probe.unlink()


@contextlib.contextmanager
def _reported(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror or error}") from error


# --- for the board, until the records have their own table -----------------------------------


@dataclass
class Table:
    """All records of a results folder, one row a trial or verdict, and the lines left out."""

    frame: Any
    damaged: list[str]


def read_table(results: Path) -> Table:
    """Read every record of a results folder into one table."""
    import pandas as pd

    reading = read_folder(results)
    rows = [
        {
            "protocol": one.protocol,
            "protocol_digest": one.protocol_digest,
            "defense": one.defense,
            "defense_version": one.defense_digest,
            "attack": one.attack,
            "attack_version": one.attack_digest,
            "harness_version": "",
            "control": one.control,
            "threat": one.threat,
            "seed": one.seed,
            "trial": -1 if one.trial is None else one.trial,
            "status": one.status,
            "kind": None,
            "reason": one.reason,
            "seconds": one.seconds,
            "gradient_evaluations": one.gradient_evaluations,
            "peak_bytes": one.peak_bytes,
            "commit": one.provenance.commit,
            "dirty": one.provenance.dirty,
            "hardware": one.provenance.hardware,
            "threads": 1,
            "versions": ", ".join(f"{k} {v}" for k, v in one.provenance.versions.items()),
            "has_excerpt": one.excerpt is not None,
            **one.metrics,
        }
        for one in reading.records
    ]
    frame = pd.DataFrame(rows)
    names = {name for one in reading.records for name in one.metrics}
    numbers = ["seconds", "gradient_evaluations", "peak_bytes", *names]
    return Table(frame.astype(dict.fromkeys(numbers, float) if rows else {}), reading.damaged)


def read_excerpts(results: Path, protocol: str) -> list[Record]:
    """Read the records of a protocol that carry an excerpt."""
    found = [read_file(path).records for path in sorted(results.glob(f"{protocol}/*/*.jsonl"))]
    return [one for records in found for one in records if one.excerpt]


def file_of(results: Path, protocol: str, attack: str) -> Path:
    """Return the file of an attack's records in a protocol."""
    path = results / protocol / f"{attack}.jsonl"
    return path if path.exists() else next(results.glob(f"{protocol}/*/{attack}.jsonl"), path)
