"""Which trials of which cells are due.

Those without a record of the same protocol, plugin source, arguments and seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmark.cell import Cell
from benchmark.protocol import Protocol
from benchmark.records import Reading, Record, cell_path, read_file
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

    def folder(self, results: Path) -> Path:
        """Return where the group's files lie."""
        return results / self.protocol.name / self.defense.label

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


def is_current(record: Record, cell: Cell) -> bool:
    """Tell whether a record was made by this very protocol, code and arguments."""
    return (
        record.protocol_digest == cell.protocol.digest
        and record.defense_digest == cell.defense.digest
        and record.attack_digest == cell.attack.digest
        and record.defense_arguments == dict(cell.defense.arguments)
        and record.attack_arguments == dict(cell.attack.arguments)
    )


def due_trials(reading: Reading, cell: Cell, trials: Sequence[int]) -> list[int]:
    """Return the trials that a cell's file lacks; an `unavailable` cell is always tried again."""
    current = [r for r in reading.records if r.seed == cell.seed and is_current(r, cell)]
    if any(record.status == "not_applicable" for record in current):
        return []
    done = {record.trial for record in current}
    return [trial for trial in trials if trial not in done]


def due_cells(group: Group, results: Path, seed: int) -> list[tuple[Cell, list[int]]]:
    """Return the cells of a group that lack trials under a seed, with those trials."""
    due = [
        (cell, due_trials(reading(cell, results), cell, group.trials)) for cell in group.cells(seed)
    ]
    return [(cell, trials) for cell, trials in due if trials]


def reading(cell: Cell, results: Path) -> Reading:
    """Read the file of a cell."""
    names = (cell.protocol.name, cell.defense.label, cell.attack.label)
    return read_file(cell_path(results, *names))


@dataclass(frozen=True)
class Survey:
    """What a run finds before it starts; each file is read once.

    Attributes:
        due: the cells that lack trials, with those trials, in the order of a run.
        records: all that the files hold, outdated ones too.
        damaged: the lines that could not be read, each as `file:line: why`.
    """

    due: list[tuple[Cell, list[int]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


def survey(groups: Iterable[Group], results: Path) -> Survey:
    """Read the files of groups."""
    found = Survey()
    for group in groups:
        readings = [reading(cell, results) for cell in group.cells(group.seeds[0])]
        for one in readings:
            found.records.extend(one.records)
            found.damaged.extend(one.damaged)
        for seed in group.seeds:
            for cell, one in zip(group.cells(seed), readings, strict=True):
                if trials := due_trials(one, cell, group.trials):
                    found.due.append((cell, trials))
    return found
