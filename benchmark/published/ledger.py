"""Every number that the papers report, read from a YAML file a paper."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import zip_longest
from pathlib import Path

from benchmark.documents import Document, Keys, read_document
from benchmark.errors import BenchmarkError
from benchmark.metrics import METRICS, OF_INPUT
from benchmark.protocol import protocol_files, utility_files
from benchmark.published.settings import (
    OF_TRAINING,
    SUITES,
    Answer,
    Answers,
    Column,
    Paper,
    Row,
    SuiteName,
    Table,
    merged,
)
from benchmark.published.values import ONE_STD, Tolerance, Value

PAPERS = Path(__file__).parent
_WANTED = {
    "records": ("protocol", "attack", "defense", "metric"),
    "accuracy": ("protocol", "defense"),
    "accuracy_lost": ("protocol", "defense", "baseline"),
    "diagnostic": ("protocol", "defense", "metric"),
    "sent": ("protocol", "defense", "channels"),
}


@dataclass(frozen=True)
class Published:
    """One published number, and what of ours answers it in a suite.

    Attributes:
        paper: the paper it stands in.
        table: name of its table, as `gradleak reproduce` takes it.
        setting: the table.
        row: its row.
        column: its column.
        value: as printed.
        answer: what of ours measures the same.
    """

    paper: Paper
    table: str
    setting: Table
    row: Row
    column: Column
    value: Value
    answer: Answer

    @property
    def attack(self) -> str:
        """The attack's label with the column's arguments."""
        return ",".join(filter(None, (self.answer.attack, self.answer.arguments)))

    @property
    def comparable(self) -> bool:
        """Whether a number of ours can be laid beside it: no bound, and not an order alone."""
        return self.value.bound is None and self.answer.compare == "number"

    @property
    def tolerance(self) -> Tolerance:
        """Within what a number of ours is the published one."""
        return self.answer.tolerance or ONE_STD


@cache
def load_ledger(folder: Path = PAPERS) -> dict[str, Paper]:
    """Return every paper of a folder by name, in the order of names.

    Raises:
        ProtocolError: a file does not fit, with file and line.
    """
    return {path.stem: _load(path) for path in sorted(folder.glob("*.yaml"))}


def published(suite: SuiteName, folder: Path = PAPERS) -> Iterator[Published]:
    """Yield every published number with its answer in a suite: by paper, table, row, column."""
    for paper in load_ledger(folder).values():
        for name, table in paper.tables.items():
            yield from _numbers(paper, name, table, suite)


def chosen(names: list[str], folder: Path = PAPERS) -> list[str]:
    """Return the tables that names select: of a table, or of a paper with all of its tables.

    Raises:
        BenchmarkError: nothing has that name.
    """
    papers = load_ledger(folder)
    tables = {name: [name] for paper in papers.values() for name in paper.tables}
    known = {name: list(paper.tables) for name, paper in papers.items()} | tables
    for name in names:
        if name not in known:
            raise BenchmarkError(f"no published table {name!r}; known: {', '.join(sorted(known))}")
    return list(dict.fromkeys(table for name in names for table in known[name]))


def published_for(
    protocol: str, attack: str, defense: str, metric: str, folder: Path = PAPERS
) -> Published | None:
    """Return what a paper reports of a cell's metric; None where none does.

    The number is in the paper's unit: `column.scale` times ours. Labels are as in the records.
    """
    return _cells(folder).get((protocol, attack, defense, metric))


@cache
def _cells(folder: Path) -> dict[tuple[str, str, str, str], Published]:
    found: dict[tuple[str, str, str, str], Published] = {}
    for one in (one for suite in SUITES for one in published(suite, folder)):
        answer = one.answer
        if answer.needs is None and answer.measure == "records" and one.comparable:
            key = (answer.protocol, one.attack, answer.defense, answer.metric)
            found.setdefault(key, one)
    return found


def _numbers(paper: Paper, name: str, table: Table, suite: SuiteName) -> Iterator[Published]:
    for row in table.rows:
        for column, written in zip(table.columns, row.values, strict=True):
            if written is not None:
                own = row.cells.get(column.name, Answers())
                answer = merged(suite, table.answer, column.answer, row.answer, own)
                value = Value.read(written)
                yield Published(paper, name, table, row, column, value, answer)


def _load(path: Path) -> Paper:
    document = read_document(path)
    paper = document.fit(Paper)
    for name, table in paper.tables.items():
        _check(document, name, table)
        for one in (one for suite in SUITES for one in _numbers(paper, name, table, suite)):
            if wrong := _wrong(one):
                at: Keys = ("tables", name, "rows", table.rows.index(one.row))
                raise document.wrong(at, f"{one.row.name}, {one.column.name}: {wrong}")
    return paper


def _check(document: Document, name: str, table: Table) -> None:
    for kind, named in (("columns", table.columns), ("rows", table.rows)):
        names = [each.name for each in named]
        twice = next((i for i, each in enumerate(names) if each in names[:i]), None)
        if twice is not None:
            keys: Keys = ("tables", name, kind, twice)
            raise document.wrong(keys, f"{names[twice]!r} stands twice")
    for i, row in enumerate(table.rows):
        if len(row.values) != len(table.columns):
            said = f"{row.name}: {len(row.values)} values of {len(table.columns)} columns"
            raise document.wrong(("tables", name, "rows", i), said)
        if row.again is not None:
            own = next((one.values for one in table.rows[:i] if one.name == row.again), ())
            if any(mine not in (None, theirs) for mine, theirs in zip_longest(row.values, own)):
                said = f"{row.name}: its numbers are not those of {row.again!r} above it"
                raise document.wrong(("tables", name, "rows", i, "again"), said)
        for column in row.cells.keys() - {column.name for column in table.columns}:
            said = f"{row.name}: no column {column!r}"
            raise document.wrong(("tables", name, "rows", i, "cells", column), said)


def _wrong(one: Published) -> str | None:
    """Return what an answer lacks to be one; None of a whole one."""
    answer = one.answer
    if answer.needs is not None:
        return None
    if math.isnan(one.value.mean):
        return f"{one.value.text!r} is no number; wanted what it needs"
    for key in _WANTED[answer.measure]:
        if not getattr(answer, key):
            return f"wanted {key}, or what it needs"
    if answer.protocol not in _protocols(trained=answer.measure in OF_TRAINING):
        return f"no protocol {answer.protocol!r}"
    if answer.measure == "records" and answer.metric.removesuffix(OF_INPUT) not in METRICS:
        return f"no metric {answer.metric!r}"
    if one.comparable and one.value.std is None and answer.tolerance is None:
        return "wanted a tolerance, for the number has no deviation"
    return None


@cache
def _protocols(*, trained: bool) -> frozenset[str]:
    return frozenset(utility_files() if trained else protocol_files())
