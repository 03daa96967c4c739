"""Tunes the rates of searches on the public split: every attack at the same factors of its own."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import torch
from filelock import FileLock

from benchmark.cell import Cell, negotiate, run_stack, stacks
from benchmark.contract import Stack
from benchmark.errors import BenchmarkError, DataUnavailable, PluginError
from benchmark.federation import DefendedRound
from benchmark.protocol import Protocol, SuitePart
from benchmark.records import Provenance
from benchmark.registry import Registry, Submission
from benchmark.running.inprocess import InProcess, attempt
from benchmark.toolbox.matching import Found, SearchAttack
from benchmark.tracks import Setting, load_setting
from benchmark.tunings import Tuning, Tunings, base, command, next_rate, stale
from benchmark.worker import Outcome

_UNDEFENDED = "none"
_TRIALS = 8
_SECONDS = 7200.0  # of a trial, in place of the protocol's


@dataclass(frozen=True)
class Tuner:
    """Tunes what is due, and says so in lines.

    Attributes:
        trials: public batches; a tuning on another number is due again. None is as many as the
            protocol's other tunings have, or eight.
        only_plan: whether only to say what is due.
    """

    results: Path
    trials: int | None
    only_plan: bool
    mirror: Path | None
    device: torch.device
    provenance: Provenance

    def tune(self, parts: Iterable[SuitePart], attacks: Sequence[str]) -> Iterator[str]:
        """Tune the searches of a suite, or those named, and yield a line for each.

        Raises:
            PluginError: no such attack, or one named that has no rate.
        """
        registry = Registry()
        for part in parts:
            chosen = registry.select("attack", attacks or part.attacks)
            chosen = [one for one in chosen if one.manifest.name not in part.leave_out]
            plain = {base(one).label: base(one) for one in chosen}
            searches = [one for one in plain.values() if has_rate(one)]
            if attacks and (other := [one.label for one in plain.values() if one not in searches]):
                raise PluginError(f"{other[0]}: has no rate to tune; wanted a search with one")
            for protocol in part.protocols:
                if protocol.budget.gradient_evaluations:
                    yield from self._protocol(protocol, searches, registry)

    def _protocol(
        self, protocol: Protocol, searches: Sequence[Submission], registry: Registry
    ) -> Iterator[str]:
        had = Tunings.read(self.results, protocol.name).attacks
        trials = self.trials or max((each.trials for each in had.values()), default=_TRIALS)
        due = []
        for one in searches:
            reason = _due(had.get(one.label), one, protocol, trials)
            if reason is None or self.only_plan:
                yield f"{protocol.name} x {one.label}: {reason or had[one.label]}"
            else:
                due.append(one)
        if not due:
            return
        try:
            setting = load_setting(_of_public(protocol, trials), self.mirror, self.device)
            (defense,) = registry.find("defense", _UNDEFENDED)
            plain = setting.round(protocol.seeds[0])
        except DataUnavailable as reason:
            yield f"{protocol.name}: unavailable: {reason}"
            return
        defended = DefendedRound(plain, defense.build(), defense.label)
        for one in due:
            cell = Cell(setting.protocol, defense, one, plain.seed)
            verdict, _ = negotiate(cell, setting, defended, InProcess(), 0)
            if verdict.status != "applies":
                yield f"{protocol.name} x {one.label}: {verdict.status}: {verdict.reason}"
                continue
            tuning = self._attack(protocol, cell, setting, defended)
            yield f"{protocol.name} x {one.label}: {tuning}"

    def _attack(
        self, protocol: Protocol, cell: Cell, setting: Setting, defended: DefendedRound
    ) -> Tuning:
        """Try every rate that is not yet in the file, and keep each before the next begins."""
        default, attack = _rate(cell.attack), cell.attack
        wanted = Tuning(
            version=attack.version,
            protocol_digest=protocol.digest,
            default=default,
            mismatch={},
            rate=None,
            trials=cell.protocol.trials,
            seed=cell.seed,
            command=command(protocol.name, attack.label, Path("results"), cell.protocol.trials),
            provenance=self.provenance,
        )
        folder = self.results / protocol.name
        folder.mkdir(parents=True, exist_ok=True)
        tuning = _begun(Tunings.read(self.results, protocol.name), attack.label, wanted)
        while (rate := next_rate(tuning.mismatch, default)) is not None:
            found = statistics.median(_mismatches(cell, rate, setting, defended))
            with FileLock(folder / ".tuning.lock"):  # another process may have tried a rate too
                now = Tunings.read(self.results, protocol.name)
                tuning = _begun(now, attack.label, wanted).tried(rate, found)
                now.attacks[attack.label] = tuning
                now.write()
        return tuning


@dataclass(frozen=True)
class AtRate(InProcess):
    """A worker that runs a search at another rate, from the starts of its own.

    Gradients are counted and seconds hardly: a rate is not worse on a slower machine.
    """

    rate: float

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Run an attack on a stack."""
        patient = [replace(s, budget=replace(s.budget, seconds=_SECONDS)) for s in stack]
        return attempt(replace(submission.build(), rate=self.rate), Stack(patient))


def has_rate(submission: Submission) -> bool:
    """Tell whether an attack is a search with a learning rate; one from outside is not asked."""
    if submission.outside or submission.manifest.control:
        return False
    attack = submission.build()
    return isinstance(attack, SearchAttack) and hasattr(attack, "rate")


def _rate(submission: Submission) -> float:
    return float(submission.build().rate)


def _due(had: Tuning | None, one: Submission, protocol: Protocol, trials: int) -> str | None:
    """Return why an attack is to be tuned; None where its tuning stands."""
    if had is None:
        return "due"
    if wrong := stale(had, one, protocol):
        return f"due: the tuning is {wrong}"
    if had.default != (default := _rate(one)):
        return f"due: the default was {had.default:g}, it is {default:g}"
    if had.trials != trials:
        return f"due: the tuning is on {had.trials} batches"
    return None if next_rate(had.mismatch, default) is None else "due: not finished"


def _begun(now: Tunings, label: str, wanted: Tuning) -> Tuning:
    """Return the tuning that stands in the file, where it is the one wanted; else that one."""
    begun, free = now.attacks.get(label), {"mismatch", "rate", "provenance"}
    same = begun is not None and begun.model_dump(exclude=free) == wanted.model_dump(exclude=free)
    return begun if begun is not None and same else wanted


def _of_public(protocol: Protocol, trials: int) -> Protocol:
    """Return a protocol whose clients hold the public split; nothing private is read of it."""
    data = protocol.data.model_copy(update={"split": "train"})
    return protocol.model_copy(update={"data": data, "trials": trials})


def _mismatches(cell: Cell, rate: float, setting: Setting, defended: DefendedRound) -> list[float]:
    """Return how far each trial's objective fell at a rate; infinite where it failed.

    Raises:
        BenchmarkError: a trial took too long, which says nothing of the rate.
    """
    trials = range(cell.protocol.trials)
    cut = stacks(trials, cell.protocol.trials, defended.plain)
    outcomes = [
        outcome
        for stack in cut
        for outcome in run_stack(cell, setting, defended, AtRate(rate), stack)
    ]
    if late := [outcome.reason for outcome in outcomes if outcome.status == "timed_out"]:
        raise BenchmarkError(f"{cell}: at rate {rate:g} a trial {late[0]}")
    answers = [outcome.reconstruction for outcome in outcomes]
    return [answer.mismatch if isinstance(answer, Found) else inf for answer in answers]
