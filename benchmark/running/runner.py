"""Runs what is due, on any engine: gives it cells, and alone writes the records that come back.

Every stack's records are on disk as soon as they have come, so a kill costs what was being made. A
lock on each (protocol, defense) keeps two runners on one results folder apart: what the other holds
is left for the end.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from benchmark import records
from benchmark.cell import Cell
from benchmark.errors import RecordError
from benchmark.records import Record
from benchmark.running.cost import START
from benchmark.running.engine import Ended, Engine
from benchmark.running.making import Made
from benchmark.running.plan import Group, due_cells, file_of_cell, replaced
from benchmark.running.progress import Progress

Shows = Literal["nothing", "failures", "everything"]


@dataclass
class Tally:
    """What a run did, and what went wrong."""

    records: int = 0
    failures: dict[str, list[str]] = field(default_factory=dict)
    """Reasons of the trials that failed or timed out, by protocol x defense x attack."""
    answered: set[str] = field(default_factory=set)
    """Attacks, and defenses, of at least one trial that completed."""
    blamed: dict[str, str] = field(default_factory=dict)
    """First reason by the attack, or the defense, that failed."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Reason by protocol."""
    lost: dict[str, str] = field(default_factory=dict)
    """Why, by cell, of what was given up and is due still."""
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What complete cells took in whichever process, by protocol."""
    attacks: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    """What of that their attacks alone took, and the start of each cell."""
    made: list[tuple[Cell, int]] = field(default_factory=list)
    """The cells that are complete, with how many of their trials ran."""

    def add(self, made: Iterable[Record]) -> None:
        """Count the records of a stack."""
        for record in made:
            self.records += 1
            name = f"{record.protocol} x {record.defense} x {record.attack}"
            if record.status == "completed":
                self.answered |= {record.attack, f"defense {record.defense}"}
            elif record.status in ("failed", "timed_out"):
                self.failures.setdefault(name, []).append(record.reason or record.status)
                if record.kind == "model_refused":
                    continue  # the defense did as it should, and the attack could do nothing
                by_defense = record.kind == "defense"
                culprit = f"defense {record.defense}" if by_defense else record.attack
                self.blamed.setdefault(culprit, record.reason or record.status)
            elif record.status == "unavailable":
                self.unavailable[record.protocol] = record.reason or ""


@dataclass
class _Held:
    """A (protocol, defense) that this runner has: its lock, and how many hang on it."""

    lock: FileLock
    open: int = 0

    def less(self) -> None:
        """One of its cells is complete; after the last it is anyone's."""
        self.open -= 1
        if self.open == 0:
            self.lock.release()


class Runner:
    """Carries out groups of cells.

    Args:
        results: the results folder.
        engine: where cells are made.
        progress: is told of every cell and trial.
        shows: whether what submissions say, which is kept beside the records, is told too: of
            every cell, or of those with a trial that failed.
    """

    def __init__(
        self, results: Path, engine: Engine, progress: Progress, shows: Shows = "nothing"
    ) -> None:
        self.results, self.engine, self.progress = results, engine, progress
        self.shows = shows
        self.tally = Tally()
        self._held: dict[Path, _Held] = {}
        self._open: dict[str, tuple[_Held, int]] = {}
        self._ran: Counter[str] = Counter()
        self._took: dict[str, float] = defaultdict(float)
        self._alone: dict[str, float] = defaultdict(float)
        self._said: dict[str, list[str]] = defaultdict(list)
        self._failed: set[str] = set()

    def run(self, groups: Sequence[Group], until: float | None = None) -> Tally:
        """Run what is due in the groups.

        Args:
            groups: in any order.
            until: `time.monotonic` after which none is begun.

        Raises:
            RecordError: the results cannot be written.
        """
        try:
            self._run(_beside(_by_seed(groups), self.engine.rounds), until)
        finally:
            for held in self._held.values():
                held.lock.release(force=True)
        return self.tally

    def _run(self, groups: Sequence[Group], until: float | None) -> None:
        later: list[Group] = []
        for group in groups:
            self._make_room()
            if until is not None and time.monotonic() > until:
                break
            if not self._begin(group, wait=False):
                later.append(group)
        self._keep_down_to(0)
        for group in later:
            if until is not None and time.monotonic() > until:
                break
            self.progress.say(f"{group}: waiting for another runner on {self.results}")
            self._begin(group, wait=True)
            self._keep_down_to(0)  # who waits holds nothing that another waits for

    def _begin(self, group: Group, *, wait: bool) -> bool:
        """Give a group of one seed to the engine; False where another runner holds it."""
        (seed,) = group.seeds
        if not due_cells(group, self.results, seed):
            return True
        path = group.lock(self.results)
        held = self._held.setdefault(path, _Held(FileLock(path)))
        if held.open == 0:  # else it is still held for another of its seeds
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                held.lock.acquire(timeout=-1 if wait else 0)
            except Timeout:
                return False
            except OSError as error:
                raise RecordError(f"{path}: cannot be written: {error.strerror}") from error
        # what was due is read again: the other runner may have done it by now
        due = due_cells(group, self.results, seed)
        held.open += 1 + len(due)
        for cell, trials in due:
            self._make_room()
            self._open[str(cell)] = held, len(trials)
            self.progress.start(cell, len(trials))
            self.engine.start(cell, trials)
        held.less()
        return True

    def _make_room(self) -> None:
        self._keep_down_to(self.engine.width + self.engine.ahead - 1)

    def _keep_down_to(self, most: int) -> None:
        """Keep what the engine makes until it holds so many cells at most."""
        while len(self._open) > most:
            cell, said = self.engine.take()
            if isinstance(said, Made):
                self._keep(cell, said)
            else:
                self._end(cell, said)

    def _keep(self, cell: Cell, made: Made) -> None:
        frozen = cell.protocol.frozen()
        records.write_protocol(self.results, cell.protocol.name, {**frozen, **made.about})
        if made.records:
            records.append(file_of_cell(cell, self.results), made.records)
        self._said[str(cell)] += [made.said] if made.said else []
        self.tally.add(made.records)
        ran = [record for record in made.records if record.trial is not None]
        failed = sum(record.status in ("failed", "timed_out") for record in ran)
        self._ran[str(cell)] += len(ran)
        self._took[str(cell)] += made.seconds
        self._alone[str(cell)] += sum(record.seconds or 0.0 for record in made.records)
        self._failed |= {str(cell)} if failed else set()
        self.progress.advance(cell, len(ran), failed)

    def _end(self, cell: Cell, ended: Ended) -> None:
        """Count a cell as done, and drop its replaced records, unless lines are not ours."""
        if ended.lost is not None:
            self.tally.lost[str(cell)] = ended.lost
        path = file_of_cell(cell, self.results)
        if replaced(records.known(path).records, cell):
            records.rewrite(path, lambda held: _without(held, replaced(held, cell)))
        self.tally.made.append((cell, self._ran.pop(str(cell), 0)))
        name = cell.protocol.name
        self.tally.seconds[name] += self._took.pop(str(cell), 0.0)
        self.tally.attacks[name] += START + self._alone.pop(str(cell), 0.0)
        self._tell(cell)
        held, trials = self._open.pop(str(cell))
        self.progress.done(cell, trials)
        held.less()

    def _tell(self, cell: Cell) -> None:
        """Keep what was said in a cell in its log, and show it where that is wanted."""
        said, log = "\n".join(self._said.pop(str(cell), [])), log_of(cell, self.results)
        if not said:
            log.unlink(missing_ok=True)  # of an earlier run
            return
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{said}\n", encoding="utf-8")
        if self.shows == "everything" or (self.shows == "failures" and str(cell) in self._failed):
            self.progress.say(f"{cell} said, and {log} keeps:")
            for line in said.splitlines():
                self.progress.say(f"  {line}")


def log_of(cell: Cell, results: Path) -> Path:
    """Return the file that keeps what a cell's submissions said, where they said anything."""
    attack, defense = (each.label.replace("/", ".") for each in (cell.attack, cell.defense))
    return results / cell.protocol.name / "logs" / defense / f"{attack}.{cell.seed}.log"


def _by_seed(groups: Sequence[Group]) -> list[Group]:
    """Return groups of one seed each, those of one protocol and seed beside one another."""
    made = []
    for protocol in dict.fromkeys(group.protocol for group in groups):
        mine = [group for group in groups if group.protocol == protocol]
        for seed in dict.fromkeys(seed for group in mine for seed in group.seeds):
            made += [replace(group, seeds=(seed,)) for group in mine if seed in group.seeds]
    return made


def _beside(groups: Sequence[Group], lanes: int) -> list[Group]:
    """Return groups with so many rounds beside one another, each from first to last."""
    rounds: dict[tuple[str, tuple[int, ...]], list[Group]] = defaultdict(list)
    for group in groups:
        rounds[group.protocol.name, group.seeds].append(group)
    waiting = deque(deque(one) for one in rounds.values())
    beside = deque(waiting.popleft() for _ in range(min(lanes, len(waiting))))
    made = []
    while beside:
        one = beside.popleft()
        made.append(one.popleft())
        if one:
            beside.append(one)
        elif waiting:
            beside.append(waiting.popleft())
    return made


def _without(held: list[Record], gone: list[Record]) -> list[Record]:
    dropped = {id(record) for record in gone}
    return [record for record in held if id(record) not in dropped]
