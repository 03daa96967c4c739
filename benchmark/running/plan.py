"""Which trials of which cells are due.

Those without a record of the same protocol, versions, arguments and seed. A record of another
version is outdated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmark.cell import Cell
from benchmark.protocol import Protocol
from benchmark.records import Record, file_of, known
from benchmark.registry import Submission


@dataclass(frozen=True)
class Group:
    """The cells of one protocol and defense: what one runner works on under one lock."""

    protocol: Protocol
    defense: Submission
    attacks: tuple[Submission, ...]
    seeds: tuple[int, ...]
    trials: tuple[int, ...]

    def cells(self, seed: int) -> list[Cell]:
        """Return the group's cells under one seed."""
        return [Cell(self.protocol, self.defense, attack, seed) for attack in self.attacks]

    def lock(self, results: Path) -> Path:
        """Return the file by which one runner at a time has the group."""
        return results / self.protocol.name / f".{self.defense.label.replace('/', '.')}.lock"

    def __str__(self) -> str:
        return f"{self.protocol.name} x {self.defense.label}"


def groups(
    protocols: Iterable[Protocol],
    defenses: Sequence[Submission],
    attacks: Sequence[Submission],
    seeds: Sequence[int] | None,
    trials: int | None,
) -> list[Group]:
    """Return all the groups of a run, in order; of fewer trials than wanted, all there are."""
    return [
        Group(
            protocol,
            defense,
            tuple(attacks),
            tuple(protocol.seeds if seeds is None else seeds),
            tuple(range(protocol.trials if trials is None else min(trials, protocol.trials))),
        )
        for protocol in protocols
        for defense in defenses
    ]


def distinct(groups: Sequence[Group]) -> list[Group]:
    """Return groups in which each cell stands once: where most of its trials are wanted."""
    owners: dict[tuple[str, str, str], Group] = {}
    for group in groups:
        for attack in group.attacks:
            key = group.protocol.name, group.defense.label, attack.label
            if key not in owners or len(group.trials) > len(owners[key].trials):
                owners[key] = group
    made = []
    for group in groups:
        names = group.protocol.name, group.defense.label
        if own := tuple(a for a in group.attacks if owners[*names, a.label] is group):
            made.append(replace(group, attacks=own))
    return made


def file_of_cell(cell: Cell, results: Path) -> Path:
    """Return the file that a cell's records lie in, beside those under other defenses."""
    return file_of(results, cell.protocol.name, cell.attack.label)


def is_current(record: Record, cell: Cell) -> bool:
    """Tell whether a record of a cell was made by this very protocol and these versions."""
    return not cell.identity.is_raised(record.identity)


def due_trials(records: Iterable[Record], cell: Cell, trials: Sequence[int]) -> list[int]:
    """Return the trials that a cell lacks; an `unavailable` cell is always tried again."""
    current = [r for r in records if _is_of(r, cell) and is_current(r, cell)]
    if any(record.status == "not_applicable" for record in current):
        return []
    done = {record.trial for record in current}
    return [trial for trial in trials if trial not in done]


def outdated(records: Iterable[Record], cell: Cell, due: Sequence[int]) -> list[Record]:
    """Return the records of a cell by other versions that are due again, the last of each trial.

    Args:
        records: of any cell.
        cell: the cell.
        due: the trials that it lacks; with any of them, so is an old verdict on the whole cell.
    """
    old = {r.trial: r for r in records if _is_of(r, cell) and not is_current(r, cell)}
    again = {None, *due} if due else set()
    return [record for trial, record in old.items() if trial in again]


def replaced(records: Iterable[Record], cell: Cell) -> list[Record]:
    """Return the records of a cell's defense, under any seed, that count no more.

    Those of other versions, those that a later one replaces, and verdicts where trials ran.
    """
    last: dict[tuple[int, int | None], Record] = {}
    gone: list[Record] = []
    for record in records:
        if record.defense != cell.defense.label:
            continue
        if not is_current(record, cell):
            gone.append(record)
            continue
        if (earlier := last.get((record.seed, record.trial))) is not None:
            gone.append(earlier)
        last[record.seed, record.trial] = record
    ran = {seed for seed, trial in last if trial is not None}
    return gone + [r for (seed, trial), r in last.items() if trial is None and seed in ran]


def due_cells(group: Group, results: Path, seed: int) -> list[tuple[Cell, list[int]]]:
    """Return the cells of a group that lack trials under a seed, with those trials."""
    due = [
        (cell, due_trials(known(file_of_cell(cell, results)).records, cell, group.trials))
        for cell in group.cells(seed)
    ]
    return [(cell, trials) for cell, trials in due if trials]


@dataclass(frozen=True)
class Survey:
    """What a run finds before it starts; each file is read once.

    Attributes:
        due: the cells that lack trials, with those trials, in the order of a run.
        outdated: the records of other versions that are among them.
        records: all that the files hold.
        current: those that count for the cells of the run.
        damaged: the lines that could not be read, each as `file:line: why`.
    """

    due: list[tuple[Cell, list[int]]] = field(default_factory=list)
    outdated: list[Record] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    current: list[Record] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def survey(groups: Iterable[Group], results: Path) -> Survey:
    """Read the files of groups."""
    found = Survey()
    files: dict[Path, dict[tuple[str, int], list[Record]]] = {}
    for group in groups:
        for seed in group.seeds:
            for cell in group.cells(seed):
                path = file_of_cell(cell, results)
                if path not in files:
                    reading = known(path)
                    found.records.extend(reading.records)
                    found.damaged.extend(reading.damaged)
                    files[path] = _by_cell(reading.records)
                mine = files[path].get((cell.defense.label, seed), [])
                found.current.extend(record for record in mine if is_current(record, cell))
                if trials := due_trials(mine, cell, group.trials):
                    found.due.append((cell, trials))
                    found.outdated.extend(outdated(mine, cell, trials))
    return found


def _is_of(record: Record, cell: Cell) -> bool:
    return record.defense == cell.defense.label and record.seed == cell.seed


def _by_cell(records: Iterable[Record]) -> dict[tuple[str, int], list[Record]]:
    found: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        found.setdefault((record.defense, record.seed), []).append(record)
    return found
