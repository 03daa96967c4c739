"""Runs what is due on this machine, one (protocol, defense) after the other.

Every stack's records are on disk before the next begins, so a kill costs one stack. A lock on
each (protocol, defense) keeps two runners on one results folder apart: what the other holds is
left for the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from filelock import FileLock, Timeout

from benchmark import records
from benchmark.cell import Cell, run_cell
from benchmark.errors import DataUnavailable, RecordError
from benchmark.federation import DefendedRound, Round
from benchmark.protocol import Protocol
from benchmark.records import Provenance, Record
from benchmark.registry import Submission
from benchmark.running.heard import Heard
from benchmark.running.plan import Group, due_cells, file_of_cell, replaced
from benchmark.running.progress import Progress
from benchmark.running.provenance import made_by
from benchmark.seeds import PUBLIC, Key
from benchmark.tracks import Setting, load_setting
from benchmark.worker import Worker

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


class LocalRunner:
    """Carries out groups of cells.

    Args:
        results: the results folder.
        worker_of: which worker runs a submission.
        provenance: goes into every record.
        device: where victims live.
        mirror: the local mirror of data sets and weights, if any.
        progress: is told of every cell and trial.
        key: what clients draw in secret hangs on it.
        heard: takes what the submissions of a cell say, which is then kept beside the records.
        shows: whether that is also told of every cell, or of those with a trial that failed.
    """

    def __init__(
        self,
        results: Path,
        *,
        worker_of: Callable[[Submission], Worker],
        provenance: Provenance,
        device: torch.device,
        mirror: Path | None,
        progress: Progress,
        key: Key = PUBLIC,
        heard: Heard | None = None,
        shows: Shows = "nothing",
    ) -> None:
        self.heard, self.shows = heard or Heard(), shows
        self.results, self.worker_of, self.provenance = results, worker_of, provenance
        self.device, self.mirror, self.progress = device, mirror, progress
        self.key = key
        self.tally = Tally()
        self._settings: dict[str, Setting] = {}
        self._round: tuple[tuple[str, int], Round] | None = None

    def run(self, groups: list[Group], until: float | None = None) -> Tally:
        """Run what is due in the groups.

        Args:
            groups: in any order.
            until: `time.monotonic` after which none is begun.

        Raises:
            RecordError: the results cannot be written.
        """
        later: list[Group] = []
        for protocol in dict.fromkeys(group.protocol for group in groups):
            mine = [group for group in groups if group.protocol == protocol]
            for seed in dict.fromkeys(seed for group in mine for seed in group.seeds):
                for group in mine:
                    if until is not None and time.monotonic() > until:
                        return self.tally
                    one = Group(protocol, group.defense, group.attacks, (seed,), group.trials)
                    if not self._try(one, wait=False):
                        later.append(one)
        for group in later:
            self.progress.say(f"{group}: waiting for another runner on {self.results}")
            self._try(group, wait=True)
        return self.tally

    def _try(self, group: Group, *, wait: bool) -> bool:
        """Run a group of one seed under its lock; False where another runner holds it."""
        (seed,) = group.seeds
        if not due_cells(group, self.results, seed):
            return True
        try:  # what cannot run is said before anything is written
            self._plain(self._setting(group.protocol), seed)
        except DataUnavailable:
            pass  # a verdict, written below
        lock = group.lock(self.results)
        try:
            lock.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(lock, timeout=-1 if wait else 0):
                # what was due is read again: the other runner may have done it by now
                self._run(group, seed, due_cells(group, self.results, seed))
        except Timeout:
            return False
        except OSError as error:
            raise RecordError(f"{lock}: cannot be written: {error.strerror}") from error
        return True

    def _run(self, group: Group, seed: int, due: list[tuple[Cell, list[int]]]) -> None:
        if not due:
            return
        name, frozen = group.protocol.name, group.protocol.frozen()
        try:
            setting = self._setting(group.protocol)
            plain = self._plain(setting, seed)
            records.write_protocol(self.results, name, {**frozen, **setting.about_data()})
        except DataUnavailable as reason:
            records.write_protocol(self.results, name, frozen)
            for cell, trials in due:
                verdict = cell.record(self.provenance, status="unavailable", reason=str(reason))
                self._keep(cell, [verdict])
                self._tidy(cell)
                self.progress.done(cell, len(trials))
            return
        defended = self._defended(group, plain)
        for cell, trials in due:
            self.progress.start(cell, len(trials))
            worker = self.worker_of(cell.attack)
            place = made_by(self.provenance, worker, cell.defense)
            failed = False
            with self.heard.listening():
                for made in run_cell(cell, setting, defended, worker, trials, place):
                    self._keep(cell, made)
                    self.progress.advance(cell, sum(record.trial is not None for record in made))
                    failed |= any(record.status in ("failed", "timed_out") for record in made)
                    if any(record.kind == "mutated" for record in made):
                        self._settings, self._round = {}, None  # shared tensors: trusted no more
                        setting = self._setting(group.protocol)
                        plain = self._plain(setting, seed)
                        defended = self._defended(group, plain)
            self._tell(cell, failed=failed)
            self.progress.done(cell, len(trials))
            self._tidy(cell)

    def _setting(self, protocol: Protocol) -> Setting:
        if protocol.name not in self._settings:
            self._settings = {protocol.name: load_setting(protocol, self.mirror, self.device)}
        return self._settings[protocol.name]

    def _plain(self, setting: Setting, seed: int) -> Round:
        key = (setting.protocol.name, seed)
        if self._round is None or self._round[0] != key:
            self._round = None  # free the old victim before the next is made
            self._round = (key, setting.round(seed))
        return self._round[1]

    def _defended(self, group: Group, plain: Round) -> DefendedRound:
        return DefendedRound(plain, group.defense.build(), group.defense.label, self.key)

    def _keep(self, cell: Cell, made: list[Record]) -> None:
        records.append(file_of_cell(cell, self.results), made)
        self.tally.add(made)

    def _tell(self, cell: Cell, *, failed: bool) -> None:
        """Keep what was said in a cell in its log, and show it where that is wanted."""
        said, log = self.heard.take(), log_of(cell, self.results)
        if not said:
            log.unlink(missing_ok=True)  # of an earlier run
            return
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{said}\n", encoding="utf-8")
        if self.shows == "everything" or (self.shows == "failures" and failed):
            self.progress.say(f"{cell} said, and {log} keeps:")
            for line in said.splitlines():
                self.progress.say(f"  {line}")

    def _tidy(self, cell: Cell) -> None:
        """Drop a cell's replaced records, unless its file holds lines that are not ours."""
        path = file_of_cell(cell, self.results)
        if replaced(records.known(path).records, cell):
            records.rewrite(path, lambda held: _without(held, replaced(held, cell)))


def log_of(cell: Cell, results: Path) -> Path:
    """Return the file that keeps what a cell's submissions said, where they said anything."""
    attack, defense = (each.label.replace("/", ".") for each in (cell.attack, cell.defense))
    return results / cell.protocol.name / "logs" / defense / f"{attack}.{cell.seed}.log"


def _without(held: list[Record], gone: list[Record]) -> list[Record]:
    dropped = {id(record) for record in gone}
    return [record for record in held if id(record) not in dropped]
