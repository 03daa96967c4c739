"""Runs strata again and compares what comes out with what is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from pathlib import Path
from typing import Literal

import torch

from benchmark.cell import run_cell, stacks
from benchmark.errors import DataUnavailable
from benchmark.federation import DefendedRound, Round
from benchmark.records import Provenance, Record
from benchmark.registry import Submission
from benchmark.running.inprocess import loops
from benchmark.seeds import Key
from benchmark.tracks import Setting, load_setting, round_key
from benchmark.verify.sample import Stratum
from benchmark.verify.tolerances import allowed, chaotic, distance, equal
from benchmark.worker import Worker

Word = Literal["equal", "within tolerance", "differs", "unavailable", "no time left"]


@dataclass(frozen=True)
class Compared:
    """What became of a stratum.

    Attributes:
        word: whether it came out the same.
        largest: the largest difference of each metric that differed.
        what: what differs beyond its tolerance, in words.
    """

    stratum: Stratum
    word: Word
    largest: dict[str, float] = field(default_factory=dict)
    what: str = ""

    @property
    def same(self) -> bool:
        """Whether it was run again and gave the same answers."""
        return self.word in ("equal", "within tolerance")


def rerun(
    strata: Sequence[Stratum],
    *,
    mirror: Path | None,
    device: torch.device,
    worker_of: Callable[[Submission], Worker],
    provenance: Provenance,
    seconds: float,
    key: Key,
) -> Iterator[Compared]:
    """Run strata again, protocol by protocol, for as long as there is time.

    Args:
        strata: those of a protocol beside each other.
        mirror: of data sets and weights.
        device: where victims live.
        worker_of: which worker runs a submission.
        provenance: of what is made now.
        seconds: that the whole may take; what would take longer, as recorded, is left out.
        key: that the records were made under.
    """
    end = time.monotonic() + seconds
    for protocol, group in groupby(strata, key=lambda stratum: stratum.cell.protocol):
        mine, left = list(group), end - time.monotonic()
        dear = [one for one, sofar in zip(mine, _added(mine), strict=True) if sofar > left]
        yield from (Compared(one, "no time left") for one in dear)
        due = [one for one in mine if one not in dear]
        if not due:
            continue
        try:
            setting = load_setting(protocol, mirror, device)
        except DataUnavailable as reason:
            yield from _unavailable(due, reason)
            continue
        due.sort(key=lambda one: (one.cell.seed, one.cell.defense.label))
        for seed, of_seed in groupby(due, key=lambda one: one.cell.seed):
            plain: tuple[Key, Round] | None = None
            for label, behind in groupby(of_seed, key=lambda one: one.cell.defense.label):
                own, defended = round_key(key, protocol, label), None
                try:
                    if plain is None or plain[0] != own:
                        plain = own, setting.round(seed, own)
                except DataUnavailable as reason:
                    yield from _unavailable(behind, reason)
                    continue
                for one in behind:
                    if time.monotonic() + one.seconds > end:
                        yield Compared(one, "no time left")
                        continue
                    if defended is None:
                        defended = DefendedRound(plain[1], one.cell.defense.build(), label, key)
                    yield _again(one, setting, defended, worker_of(one.cell.attack), provenance)
                defended = None  # one defense's updates at a time


def _unavailable(strata: Iterable[Stratum], reason: DataUnavailable) -> Iterator[Compared]:
    return (Compared(one, "unavailable", what=str(reason)) for one in strata)


def largest_gaps(compared: Iterable[Compared]) -> dict[str, float]:
    """Return the largest difference of each metric that differed anywhere."""
    found: dict[str, float] = {}
    for one in compared:
        for name, gap in one.largest.items():
            found[name] = max(gap, found.get(name, 0.0))
    return found


def _again(
    stratum: Stratum,
    setting: Setting,
    defended: DefendedRound,
    worker: Worker,
    provenance: Provenance,
) -> Compared:
    """Run one stratum again: where this is the place of its records, in the stacks they came of."""
    cell = stratum.cell
    trials = sorted(0 if record.trial is None else record.trial for record in stratum.records)
    here = _as_there(stratum.records, provenance)
    if here and not _alone(cell.attack) and stratum.beside:
        cut = stacks(stratum.beside, cell.protocol.trials, defended.plain)
        trials = [trial for stack in cut if set(stack) & set(trials) for trial in stack]
    parts = run_cell(cell, setting, defended, worker, trials, provenance)
    return compare(stratum, [record for part in parts for record in part], exactly=here)


def _added(strata: Sequence[Stratum]) -> list[float]:
    """Return the seconds of strata up to each, itself included."""
    return list(accumulate(stratum.seconds for stratum in strata))


def compare(stratum: Stratum, again: Iterable[Record], *, exactly: bool) -> Compared:
    """Compare the recorded trials of a stratum with the same trials made again.

    Args:
        stratum: the records.
        again: records of the same keys, more perhaps.
        exactly: whether no number may move at all.
    """
    found = {record.key: record for record in again}
    elsewhere = chaotic if stratum.cell.attack.manifest.rounding_decides else allowed
    fits = equal if exactly else elsewhere
    largest: dict[str, float] = {}
    wrong: list[str] = []
    for record in stratum.records:
        other = found.get(record.key)
        where = "the cell" if record.trial is None else f"seed {record.seed} trial {record.trial}"
        if other is None or other.status != record.status:
            now = "nothing" if other is None else other.status
            wrong.append(f"{where}: {record.status} recorded, {now} now")
            continue
        for name, number in record.metrics.items():
            new = other.metrics.get(name)
            if gap := distance(number, new):
                largest[name] = max(gap, largest.get(name, 0.0))
            if not fits(name, number, new):
                wrong.append(f"{where}: {name} {_told(number)} recorded, {_told(new)} now")
    if wrong:
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return Compared(stratum, "differs", largest, f"{wrong[0]}{more}")
    return Compared(stratum, "within tolerance" if largest else "equal", largest)


def _alone(attack: Submission) -> bool:
    """Tell whether an attack takes each trial by itself, whatever the stack."""
    return not attack.outside and loops(attack.build())


def _as_there(records: Iterable[Record], here: Provenance) -> bool:
    """Tell whether this place is the one that records were made at."""
    return all(record.provenance.place == here.place for record in records)


def _told(number: float | None) -> str:
    return "no number" if number is None else f"{number:.6g}"
