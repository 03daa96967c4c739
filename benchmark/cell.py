"""One cell, protocol x defense x attack under one seed, from top to bottom. Read this first.

Truth and defense live in the round; the attack meets only what `observe` lets through; its
answers are judged, scored against the truth, and become records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
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
    fault,
    is_count,
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
from benchmark.victims import Victim, VictimSettings, VictimSpec, build

_STACK_BYTES = 2**30  # updates handed to an attack at a time
_STACK_TRIALS = 32


@dataclass(frozen=True)
class Outcome:
    """What became of one trial; a reconstruction only where it completed.

    `gradient_evaluations` is known once the answer has been judged, and of an answer alone.
    """

    reconstruction: Reconstruction | None
    status: Status
    reason: str | None
    seconds: float
    peak_bytes: int | None
    gradient_evaluations: int | None = None


@dataclass(frozen=True)
class Verdict:
    """Whether an attack fits a cell, and if not, why; `missing` are the facts it lacks."""

    status: Literal["applies", "not_applicable", "unavailable", "failed"]
    reason: str | None
    missing: tuple[Grant, ...] = ()


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
    """What all cells of a protocol share: the data, and the yardsticks of the scores.

    Attributes:
        public_network: frozen; or why a granted one cannot be had here, which is a matter for the
            attacks that need it alone; None where none is granted.
    """

    protocol: Protocol
    data: ImageSet
    statistics: DataStatistics
    scorer: Scorer
    mirror: Path | None
    device: torch.device
    public_network: Victim | DataUnavailable | None

    @classmethod
    def load(cls, protocol: Protocol, mirror: Path | None, device: torch.device) -> Setting:
        """Load a protocol's data and its public network.

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
        network: Victim | DataUnavailable | None = None
        if protocol.public_network is not None:
            spec = _spec(protocol.public_network, data, statistics)
            try:
                network = build(spec, generator(0, protocol.name, "public network"), mirror)
                network = network.to(device).requires_grad_(False)
            except DataUnavailable as reason:
                network = reason
        return cls(protocol, data, statistics, scorer, mirror, device, network)

    def round(self, seed: int) -> Round:
        """Make the undefended round of one seed: victim, batches, updates on demand.

        Raises:
            DataUnavailable: the victim's weights cannot be had here.
        """
        spec = _spec(self.protocol.victim, self.data, self.statistics)
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
            distinct_labels=self.protocol.federation.distinct_labels,
        )


def _spec(settings: VictimSettings, data: ImageSet, statistics: DataStatistics) -> VictimSpec:
    """Return a network in full: the protocol's settings and what the data adds."""
    return VictimSpec(
        **settings.model_dump(exclude={"mean", "std"}),
        channels=data.images.shape[1],
        size=data.images.shape[-1],
        classes=len(data.class_names),
        mean=settings.mean or tuple(statistics.mean.tolist()),
        std=settings.std or tuple(statistics.std.tolist()),
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
    if verdict.status in ("not_applicable", "unavailable"):
        yield [cell.record(provenance, status=verdict.status, reason=verdict.reason)]
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
    """Return what one stack of trials came to in the worker, trial by trial, judged."""
    outcomes: dict[int, Outcome] = {}
    seen: dict[int, Observation] = {}
    for trial in trials:
        try:
            seen[trial] = _observe(cell, setting, defended, defended.update(trial), trial)
        except PluginError as error:
            outcomes[trial] = Outcome(None, "failed", str(error), 0.0, None)
    if seen:
        answers = worker.reconstruct(cell.attack, Stack(list(seen.values())))
        judged = [_judged(cell, setting, answer) for answer in answers]
        outcomes |= dict(zip(seen, judged, strict=True))
    return [outcomes[trial] for trial in trials]


def applies(
    cell: Cell, setting: Setting, defended: DefendedRound, worker: Worker, trial: int
) -> Verdict:
    """Ask whether an attack fits a cell; a defense that fails is told trial by trial, not here."""
    try:
        seen = _observe(cell, setting, defended, defended.update(trial), trial)
    except PluginError:
        return Verdict("applies", None)
    verdict, network = worker.applies(cell.attack, seen), setting.public_network
    if isinstance(network, DataUnavailable) and verdict.missing == (Grant.PUBLIC_NETWORK,):
        return Verdict("unavailable", str(network))
    return verdict


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
    network = setting.public_network
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
        public_network=network if isinstance(network, Victim) else None,
        control=control,
    )


def _judged(cell: Cell, setting: Setting, outcome: Outcome) -> Outcome:
    """Return an outcome as the harness takes it: an answer with a fault is a failed trial."""
    answer, protocol = outcome.reconstruction, cell.protocol
    if answer is None:
        return outcome
    wrong = fault(
        answer,
        shape=(protocol.federation.batch_size, *setting.data.images.shape[1:]),
        classes=len(setting.data.class_names),
        budget=protocol.budget.budget(),
    )
    if wrong is not None:
        outcome = replace(outcome, reconstruction=None, status="failed", reason=wrong)
    spent = answer.gradient_evaluations
    return replace(outcome, gradient_evaluations=spent if is_count(spent) else None)


def _record(
    cell: Cell,
    setting: Setting,
    defended: DefendedRound,
    trial: int,
    outcome: Outcome,
    provenance: Provenance,
) -> Record:
    """Score one outcome; what did not complete scores as the prior alone, which knows no label."""
    truth, reason = defended.plain.truths[trial], outcome.reason
    if outcome.status == "failed" and defended.sent_nonsense(trial):  # late: it reads the update
        reason = f"defense {cell.defense.label}: the update is not finite; {reason}"
    prior = setting.statistics.mean_image.expand_as(truth.images)
    answer = outcome.reconstruction or Reconstruction(prior, labels=truth.labels[:0])
    granted = Grant.LABELS in cell.protocol.threat.grants  # then there are none to infer
    labels = None if granted or answer.labels is None else (truth.labels, answer.labels)
    return cell.record(
        provenance,
        trial=trial,
        status=outcome.status,
        reason=reason,
        scores=setting.scorer.score(truth.images, answer.images, labels),
        seconds=outcome.seconds,
        gradient_evaluations=outcome.gradient_evaluations,
        peak_bytes=outcome.peak_bytes,
    )
