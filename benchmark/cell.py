"""One cell, protocol x defense x attack under one seed, from top to bottom. Read this first.

Truth and defense live in the round; the attack meets only what `observe` lets through; its
answers are judged, scored against the truth, and become records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from typing import Protocol as Interface

import torch

from benchmark.contract import (
    DataStatistics,
    Grant,
    Observation,
    Reconstruction,
    Stack,
    Update,
    observe,
)
from benchmark.data import ImageSet, find_weights, load_images
from benchmark.errors import DataUnavailable, PluginError
from benchmark.federation import DefendedRound, Round
from benchmark.metrics import ALEXNET_FILE, ALEXNET_URL, Scorer
from benchmark.protocol import Protocol
from benchmark.records import Provenance, Record, Status
from benchmark.registry import Submission
from benchmark.seeds import generator
from benchmark.victims import Victim, VictimSpec, build

_STACK_BYTES = 2**30  # updates handed to an attack at a time
_STACK_TRIALS = 32


@dataclass(frozen=True)
class Outcome:
    """What became of one trial in a worker; a reconstruction only where it completed."""

    reconstruction: Reconstruction | None
    status: Status
    reason: str | None
    seconds: float
    peak_bytes: int | None


@dataclass(frozen=True)
class Verdict:
    """Whether an attack fits a cell, and if not, why."""

    status: Literal["applies", "not_applicable", "failed"]
    reason: str | None


class Worker(Interface):
    """Where attacks run: in this process, or in a child that can be killed.

    Whatever an attack does, a worker answers.
    """

    def load(self, submission: Submission) -> None:
        """Import an attack, or raise PluginError."""

    def applies(self, submission: Submission, seen: Observation) -> Verdict:
        """Ask an attack whether it fits; it sees the update's shapes, and no values."""

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Run an attack on a stack, and return one outcome a trial, in order."""


@dataclass(frozen=True)
class Setting:
    """What all cells of a protocol share: the data, and the yardsticks of the scores."""

    protocol: Protocol
    data: ImageSet
    statistics: DataStatistics
    scorer: Scorer
    mirror: Path | None
    device: torch.device

    @classmethod
    def load(cls, protocol: Protocol, mirror: Path | None, device: torch.device) -> Setting:
        """Load a protocol's data.

        Raises:
            DataUnavailable: the data set cannot be had here.
        """
        chosen = protocol.data
        data = load_images(chosen.name, chosen.split, chosen.size, mirror)
        statistics = load_images(chosen.name, "train", chosen.size, mirror).statistics
        try:
            backbone = find_weights(ALEXNET_FILE, ALEXNET_URL, mirror)
        except DataUnavailable:
            backbone = None  # the scorer then answers None for LPIPS
        std = protocol.victim.std or tuple(statistics.std.tolist())
        scorer = Scorer(protocol.metrics, std, backbone)
        return cls(protocol, data, statistics, scorer, mirror, device)

    def round(self, seed: int) -> Round:
        """Make the undefended round of one seed: victim, batches, updates on demand.

        Raises:
            DataUnavailable: the victim's weights cannot be had here.
        """
        settings = self.protocol.victim.model_dump(exclude={"mean", "std"})
        spec = VictimSpec(
            **settings,
            channels=self.data.images.shape[1],
            size=self.protocol.data.size,
            classes=len(self.data.class_names),
            mean=self.protocol.victim.mean or tuple(self.statistics.mean.tolist()),
            std=self.protocol.victim.std or tuple(self.statistics.std.tolist()),
        )
        name = self.protocol.name
        victim: Victim = build(spec, generator(seed, name, "victim"), self.mirror).to(self.device)
        return Round(
            name,
            seed,
            victim,
            self.data,
            self.statistics,
            trials=self.protocol.trials,
            batch_size=self.protocol.federation.batch_size,
        )


@dataclass(frozen=True)
class Cell:
    """One attack against one defense in a protocol, under one seed."""

    protocol: Protocol
    defense: Submission
    attack: Submission
    seed: int

    def __str__(self) -> str:
        names = (self.protocol.name, self.defense.label, self.attack.label, f"seed {self.seed}")
        return " x ".join(names)

    def record(
        self,
        provenance: Provenance,
        *,
        trial: int | None = None,
        status: Status,
        reason: str | None = None,
        scores: dict[str, float | None] | None = None,
        seconds: float | None = None,
        gradient_evaluations: int | None = None,
        peak_bytes: int | None = None,
    ) -> Record:
        """Return a record of this cell; without a trial it is the verdict on the whole cell."""
        return Record(
            protocol=self.protocol.name,
            protocol_digest=self.protocol.digest,
            defense=self.defense.label,
            defense_arguments=dict(self.defense.arguments),
            defense_digest=self.defense.digest,
            attack=self.attack.label,
            attack_arguments=dict(self.attack.arguments),
            attack_digest=self.attack.digest,
            control=self.attack.manifest.control,
            threat=str(self.protocol.threat.model()),
            seed=self.seed,
            trial=trial,
            status=status,
            reason=reason,
            metrics=scores or dict.fromkeys(self.protocol.metrics),
            seconds=seconds,
            gradient_evaluations=gradient_evaluations,
            peak_bytes=peak_bytes,
            provenance=provenance,
        )


def run_cell(
    cell: Cell,
    setting: Setting,
    defended: DefendedRound,
    worker: Worker,
    due: Sequence[int],
    provenance: Provenance,
) -> Iterator[list[Record]]:
    """Run the trials of a cell that are due, and yield the records of each stack.

    Args:
        cell: the cell.
        setting: its protocol's data and scorer.
        defended: its round behind its defense, shared with the other attacks.
        worker: where the attack runs.
        due: the trials wanted.
        provenance: goes into every record.
    """
    verdict = applies(cell, setting, defended, worker, due[0])
    if verdict.status == "not_applicable":
        yield [cell.record(provenance, status="not_applicable", reason=verdict.reason)]
        return
    for trials in stacks(due, cell.protocol.trials, defended.plain):
        if verdict.status == "failed":
            outcomes = [Outcome(None, "failed", verdict.reason, 0.0, None)] * len(trials)
        else:
            outcomes = attacked(cell, setting, defended, worker, trials)
        yield [
            _record(cell, setting, defended, trial, outcome, provenance)
            for trial, outcome in zip(trials, outcomes, strict=True)
        ]


def stacks(due: Sequence[int], trials: int, plain: Round) -> list[list[int]]:
    """Cut the due trials at fixed places, as many to a stack as the memory allows.

    The places depend on the protocol alone, so that a run finished after a kill hands an attack
    the stacks of a run that was never killed.
    """
    weights = plain.victim.weights().values()
    update_bytes = sum(weight.nbytes for weight in weights)
    size = max(1, min(_STACK_TRIALS, trials, _STACK_BYTES // update_bytes))
    starts = range(0, trials, size)
    cut = [[trial for trial in due if start <= trial < start + size] for start in starts]
    return [stack for stack in cut if stack]


def attacked(
    cell: Cell, setting: Setting, defended: DefendedRound, worker: Worker, trials: Sequence[int]
) -> list[Outcome]:
    """Return what one stack of trials came to in the worker, trial by trial, not yet judged."""
    outcomes: dict[int, Outcome] = {}
    seen: dict[int, Observation] = {}
    for trial in trials:
        try:
            seen[trial] = _observe(cell, setting, defended, defended.update(trial), trial)
        except PluginError as error:
            outcomes[trial] = Outcome(None, "failed", str(error), 0.0, None)
    if seen:
        answers = worker.reconstruct(cell.attack, Stack(list(seen.values())))
        outcomes |= dict(zip(seen, answers, strict=True))
    return [outcomes[trial] for trial in trials]


def applies(
    cell: Cell, setting: Setting, defended: DefendedRound, worker: Worker, trial: int
) -> Verdict:
    """Ask whether an attack fits a cell; a defense that fails is told trial by trial, not here."""
    try:
        seen = _observe(cell, setting, defended, defended.update(trial), trial)
    except PluginError:
        return Verdict("applies", None)
    return worker.applies(cell.attack, seen)


def _observe(
    cell: Cell, setting: Setting, defended: DefendedRound, update: Update, trial: int
) -> Observation:
    """Let through the door what this attack may see of a trial."""
    plain, protocol = defended.plain, cell.protocol
    control: dict[Grant, Any] = {}
    if Grant.TRUTH in cell.attack.manifest.grants:
        control[Grant.TRUTH] = plain.truths[trial].images.clone()
    if Grant.OTHER_UPDATE in cell.attack.manifest.grants:
        control[Grant.OTHER_UPDATE] = defended.update((trial + 1) % protocol.trials)
    names = (protocol.name, "attack", cell.attack.label, cell.defense.label, trial)
    return observe(
        protocol.threat.model(),
        update=update,
        model=defended.server_model,
        budget=protocol.budget.budget(),
        generator=generator(cell.seed, *names),
        batch_size=len(plain.truths[trial]),
        labels=plain.truths[trial].labels,
        data_statistics=setting.statistics,
        defense={"name": cell.defense.manifest.name, **defended.defense.describe()},
        control=control,
    )


def _record(
    cell: Cell,
    setting: Setting,
    defended: DefendedRound,
    trial: int,
    outcome: Outcome,
    provenance: Provenance,
) -> Record:
    """Judge and score one outcome; what did not complete scores as the prior alone."""
    truth = defended.plain.truths[trial].images
    answer, status, reason = outcome.reconstruction, outcome.status, outcome.reason
    if answer is not None:
        wrong = _wrong(answer, truth)
        if wrong is not None:
            answer, status, reason = None, "failed", wrong
    if status == "failed" and defended.sent_nonsense(trial):  # asked late: it reads all the update
        reason = f"defense {cell.defense.label}: the update is not finite; {reason}"
    prior = setting.statistics.mean_image.expand_as(truth)
    images = prior if answer is None else answer.images
    return cell.record(
        provenance,
        trial=trial,
        status=status,
        reason=reason,
        scores=setting.scorer.score(truth, images),
        seconds=outcome.seconds,
        gradient_evaluations=answer.gradient_evaluations if answer else None,
        peak_bytes=outcome.peak_bytes,
    )


def _wrong(answer: Reconstruction, truth: torch.Tensor) -> str | None:
    """Return what is wrong with a reconstruction, or None."""
    images: Any = answer.images
    if not isinstance(images, torch.Tensor):
        return f"returned images of type {type(images).__name__}; wanted a tensor"
    if images.layout != torch.strided or images.is_meta:
        return "returned images without values of their own; wanted a dense tensor"
    if images.shape != truth.shape:
        return f"returned images {tuple(images.shape)}; wanted {tuple(truth.shape)}"
    if images.dtype != torch.float32:
        return f"returned images of {images.dtype}; wanted torch.float32"
    if not bool(images.isfinite().all()):
        return "returned images that are not finite"
    count = answer.gradient_evaluations
    if not isinstance(count, int) or count < 0:
        return f"returned {count!r:.40} gradient evaluations; wanted a whole number"
    return None
