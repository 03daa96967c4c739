"""Runs strata again and compares what comes out with what is recorded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Literal

import torch

from benchmark.cell import Worker, run_cell, stacks
from benchmark.errors import DataUnavailable
from benchmark.federation import DefendedRound
from benchmark.records import Provenance, Record
from benchmark.registry import Submission
from benchmark.running.inprocess import loops
from benchmark.tracks import load_setting
from benchmark.verify.sample import Stratum
from benchmark.verify.tolerances import allowed, distance, equal

Word = Literal["equal", "within tolerance", "differs", "unavailable", "no time left"]


@dataclass(frozen=True)
class Compared:
    """What became of a stratum.

    Attributes:
        word: whether it came out the same.
        largest: the largest difference of each metric that differed.
        what: what differs beyond its tolerance, in words.
        provenance: where it was run again; None where it was not.
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
) -> Iterator[Compared]:
    """Run strata again, protocol by protocol, for as long as there is time.

    Args:
        strata: those of a protocol beside each other.
        mirror: of data sets and weights.
        device: where victims live.
        worker_of: which worker runs a submission.
        provenance: of what is made now.
        seconds: that the whole may take; what would take longer, as recorded, is left out.
    """
    end = time.monotonic() + seconds
    for protocol, group in groupby(strata, key=lambda stratum: stratum.cell.protocol):
        mine = list(group)
        possible = [s for s in mine if time.monotonic() + s.seconds <= end]
        yield from (Compared(s, "no time left") for s in mine if s not in possible)
        if not possible:
            continue
        try:
            setting = load_setting(protocol, mirror, device)
            rounds = {seed: setting.round(seed) for seed in {s.cell.seed for s in possible}}
        except DataUnavailable as reason:
            yield from (Compared(s, "unavailable", what=str(reason)) for s in possible)
            continue
        defended: dict[tuple[str, int], DefendedRound] = {}
        for one in possible:
            if time.monotonic() + one.seconds > end:
                yield Compared(one, "no time left")
                continue
            cell = one.cell
            key = (cell.defense.label, cell.seed)
            if key not in defended:
                defended[key] = DefendedRound(rounds[cell.seed], cell.defense.build(), key[0])
            trials = sorted(0 if r.trial is None else r.trial for r in one.records)
            whole = stacks(range(protocol.trials), protocol.trials, rounds[cell.seed])
            worker = worker_of(cell.attack)
            made = [
                record
                for part in run_cell(cell, setting, defended[key], worker, trials, provenance)
                for record in part
            ]
            alike = trials in whole or _alone(cell.attack)
            yield compare(one, made, exactly=alike and _as_there(one.records, provenance))


def compare(stratum: Stratum, again: Iterable[Record], *, exactly: bool) -> Compared:
    """Compare the recorded trials of a stratum with the same trials made again.

    Args:
        stratum: the records.
        again: records of the same keys, more perhaps.
        exactly: whether no number may move at all.
    """
    found = {record.key: record for record in again}
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
            fits = equal(number, new) if exactly else allowed(name, number, new)
            if not fits:
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
    here = here.model_copy(update={"commit": None, "dirty": None})
    return all(
        r.provenance.model_copy(update={"commit": None, "dirty": None}) == here for r in records
    )


def _told(number: float | None) -> str:
    return "no number" if number is None else f"{number:.6g}"
