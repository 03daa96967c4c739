"""The lines of a file: constants once, then a short line a trial.

A file holds three kinds of JSON lines, each of which names the one above it by a digest of it, so
that lines may stand in any order and twice, and a merge of two files is their union:

    {"schema":2,"run":ID, ...}          what the trials of a run share: identity, provenance
    {"cell":ID,"run":ID,"defense":...}  the defense they meet
    {"in":ID,"seed":0,"trial":3, ...}   a trial; without one, a verdict on the cell
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from benchmark.errors import RecordError
from benchmark.metrics import Excerpt
from benchmark.records.schema import (
    SCHEMA,
    FailureKind,
    Identity,
    Provenance,
    Record,
    Status,
    Wall,
)

TRIAL_PREFIX = b'{"in":'
_DIGEST = 12  # hexadecimal digits: no two headers of a million cells are likely to share them


class Run(BaseModel):
    """What all the trials of one attack share that one run made in one protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: str
    protocol_digest: str
    attack: str
    attack_version: str
    attack_fingerprint: str
    harness_version: str
    harness_fingerprint: str
    control: bool
    threat: str
    metrics: tuple[str, ...]
    """Names, in the order of each trial's scores."""
    commit: str | None
    dirty: bool | None
    hardware: str
    threads: int | None
    versions: dict[str, str]
    key: str | None = None
    wall: Wall | None = None
    rounding_decides: bool = False


class CellOfRun(BaseModel):
    """A defense, within a run."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run: str
    defense: str
    defense_version: str
    defense_fingerprint: str
    description: dict[str, bool | int | float | str | None] = {}


class Line(BaseModel):
    """A trial, or a verdict on a cell."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    seed: int
    trial: int | None = Field(default=None, ge=0)
    status: Status = "completed"
    kind: FailureKind | None = None
    reason: str | None = None
    scores: tuple[float | None, ...] = ()
    seconds: float | None = None
    gradients: int | None = None
    peak_bytes: int | None = None
    excerpt: dict[str, Any] | None = None


@dataclass
class Headers:
    """The headers met so far, by the digests that lines name them by."""

    runs: dict[str, Run] = field(default_factory=dict)
    cells: dict[str, CellOfRun] = field(default_factory=dict)

    def take(self, content: dict[str, Any]) -> None:
        """Keep a header.

        Raises:
            RecordError: it is of a newer schema.
            ValueError: it holds what it may not.
            KeyError: it has no digest.
        """
        if "schema" not in content:
            name, cell = content.pop("cell"), CellOfRun.model_validate(content)
            if self.cells.setdefault(name, cell) != cell:
                raise ValueError(f"cell {name!r} is two")
        elif (found := content.pop("schema")) == SCHEMA:
            name, run = content.pop("run"), Run.model_validate(content)
            if self.runs.setdefault(name, run) != run:
                raise ValueError(f"run {name!r} is two")
        else:
            raise RecordError(f"schema {found!r}; this gradleak reads up to {SCHEMA}: update it")

    def of(self, name: str) -> tuple[Run, CellOfRun] | None:
        """Return the headers of a trial, or None where one has yet to come."""
        cell = self.cells.get(name)
        run = self.runs.get(cell.run) if cell else None
        return (run, cell) if run and cell else None


def encode(records: Iterable[Record], known: Container[str] = ()) -> str:
    """Return records as lines, each header once and only where it is not known.

    Args:
        records: of one attack in one protocol.
        known: the digests of headers that the file holds.

    Raises:
        ValueError: a number that is not finite.
    """
    said: set[str] = set()
    lines: list[str] = []

    def header(start: dict[str, Any], name: str, content: dict[str, Any]) -> str:
        digest = hashlib.sha256(_json(content).encode()).hexdigest()[:_DIGEST]
        if digest not in known and digest not in said:
            said.add(digest)
            lines.append(_json({**start, name: digest, **content}))
        return digest

    for record in records:
        content = _run(record).model_dump(mode="json", exclude_defaults=True)
        run = header({"schema": SCHEMA}, "run", content)
        cell = header({}, "cell", _cell(record, run).model_dump(exclude_defaults=True))
        lines.append(_json({"in": cell, **_line(record)}))
    return "".join(f"{line}\n" for line in lines)


def decode(run: Run, cell: CellOfRun, line: Line) -> Record:
    """Return the record of a line under its headers.

    Raises:
        ValueError: another number of scores than of metrics.
    """
    ran = line.trial is not None
    if ran and len(line.scores) != len(run.metrics):
        raise ValueError(f"{len(line.scores)} scores of {len(run.metrics)} metrics")
    scores = line.scores if ran else (None,) * len(run.metrics)
    return Record.model_construct(
        protocol=run.protocol,
        defense=cell.defense,
        description=cell.description,
        attack=run.attack,
        identity=identity(run, cell),
        control=run.control,
        rounding_decides=run.rounding_decides,
        threat=run.threat,
        seed=line.seed,
        trial=line.trial,
        status=line.status,
        kind=line.kind,
        reason=line.reason,
        metrics=dict(zip(run.metrics, scores, strict=True)),
        seconds=line.seconds,
        gradient_evaluations=line.gradients,
        peak_bytes=line.peak_bytes,
        provenance=provenance(run),
        excerpt=None if line.excerpt is None else _read_excerpt(line.excerpt),
    )


def identity(run: Run, cell: CellOfRun) -> Identity:
    """Return what the trials of a cell stand on."""
    fields = {**dict(run), **dict(cell)}
    return Identity.model_construct(**{name: fields[name] for name in Identity.model_fields})


def provenance(run: Run) -> Provenance:
    """Return where the trials of a run come from."""
    return Provenance.model_construct(**{n: getattr(run, n) for n in Provenance.model_fields})


def _run(record: Record) -> Run:
    return Run(
        protocol=record.protocol,
        attack=record.attack,
        control=record.control,
        rounding_decides=record.rounding_decides,
        threat=record.threat,
        metrics=tuple(record.metrics),
        **_part(record.identity, Run),
        **dict(record.provenance),
    )


def _cell(record: Record, run: str) -> CellOfRun:
    return CellOfRun(
        run=run,
        defense=record.defense,
        description=record.description,
        **_part(record.identity, CellOfRun),
    )


def _part(identity: Identity, of: type[BaseModel]) -> dict[str, Any]:
    return {name: value for name, value in identity if name in of.model_fields}


def _line(record: Record) -> dict[str, Any]:
    line = Line.model_construct(
        seed=record.seed,
        trial=record.trial,
        status=record.status,
        kind=record.kind,
        reason=record.reason,
        scores=() if record.trial is None else tuple(record.metrics.values()),
        seconds=record.seconds,
        gradients=record.gradient_evaluations,
        peak_bytes=record.peak_bytes,
        excerpt=None if record.excerpt is None else _write_excerpt(record.excerpt),
    )
    return line.model_dump(exclude_defaults=True)


def _write_excerpt(excerpt: Excerpt) -> dict[str, Any]:
    """Return an excerpt without what its truth already says: the pieces that are the same."""
    pairs = zip(excerpt.truth, excerpt.answer, strict=True)
    content = {
        "truth": excerpt.truth,
        "other": {str(i): answer for i, (truth, answer) in enumerate(pairs) if truth != answer},
        "exact": _written(excerpt.exact),
    }
    return content if excerpt.certain is None else {**content, "certain": _written(excerpt.certain)}


def _read_excerpt(content: Mapping[str, Any]) -> Excerpt:
    truth, other, certain = content["truth"], content["other"], content.get("certain")
    return Excerpt(
        truth=truth,
        answer=tuple(other.get(str(i), piece) for i, piece in enumerate(truth)),
        exact=tuple(_marks(content["exact"])),
        certain=None if certain is None else tuple(_marks(certain)),
    )


def _written(marks: Iterable[bool]) -> str:
    return "".join("01"[mark] for mark in marks)


def _marks(text: str) -> Iterator[bool]:
    return (mark == "1" for mark in text)


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"), allow_nan=False)
