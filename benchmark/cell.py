"""One cell, protocol x defense x attack under one seed, from top to bottom. Read this first.

Truth and defense live in the round; the attack meets only what `observe` lets through; its
answers are judged, scored against the truth, and become records.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch

from benchmark.contract import (
    Grant,
    Observation,
    Reconstruction,
    Stack,
    Update,
    is_count,
    observe,
)
from benchmark.errors import DataUnavailable, DefenseError, NotApplicable, PluginError, RefusedError
from benchmark.federation import DefendedRound, Round
from benchmark.identity import harness_fingerprint, harness_version
from benchmark.metrics import OF_INPUT
from benchmark.protocol import Protocol
from benchmark.records import Excerpt, FailureKind, Identity, Provenance, Record, Status
from benchmark.registry import Submission
from benchmark.seeds import generator
from benchmark.tracks import Setting
from benchmark.worker import Outcome, Verdict, Worker

_STACK_BYTES = 2**30  # updates handed to an attack at a time
_STACK_TRIALS = 32


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

    @cached_property
    def identity(self) -> Identity:
        """What its records stand on."""
        return Identity(
            protocol_digest=self.protocol.digest,
            attack_version=self.attack.version,
            attack_fingerprint=self.attack.fingerprint,
            defense_version=self.defense.version,
            defense_fingerprint=self.defense.fingerprint,
            harness_version=harness_version(),
            harness_fingerprint=harness_fingerprint(),
        )

    @cached_property
    def description(self) -> dict[str, Any]:
        """What its defense says of itself."""
        return dict(self.defense.build().describe())

    @cached_property
    def threat(self) -> str:
        """The threat model, in words."""
        return str(self.protocol.threat.model())

    def record(
        self,
        provenance: Provenance,
        *,
        trial: int | None = None,
        status: Status,
        kind: FailureKind | None = None,
        reason: str | None = None,
        scores: dict[str, float | None] | None = None,
        excerpt: Excerpt | None = None,
        seconds: float | None = None,
        gradient_evaluations: int | None = None,
        peak_bytes: int | None = None,
    ) -> Record:
        """Return a record of this cell; without a trial it is the verdict on the whole cell."""
        return Record(
            protocol=self.protocol.name,
            defense=self.defense.label,
            attack=self.attack.label,
            description=self.description,
            identity=self.identity,
            control=self.attack.manifest.control,
            rounding_decides=self.attack.manifest.rounding_decides,
            threat=self.threat,
            seed=self.seed,
            trial=trial,
            status=status,
            kind=kind,
            reason=reason,
            metrics=scores or dict.fromkeys(self.protocol.metrics),
            seconds=seconds,
            gradient_evaluations=gradient_evaluations,
            peak_bytes=peak_bytes,
            provenance=provenance,
            excerpt=excerpt,
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
        defended: its round behind its defense, shared with the other attacks; a malicious server
            has its own, made here.
        worker: where the attack runs.
        due: the trials wanted.
        provenance: goes into every record.
    """
    verdict, defended = negotiate(cell, setting, defended, worker, due[0])
    if verdict.status in ("not_applicable", "unavailable"):
        yield [cell.record(provenance, status=verdict.status, reason=verdict.reason)]
        return
    for trials in stacks(due, cell.protocol.trials, defended.plain):
        if verdict.status == "failed":
            never = Outcome(None, "failed", verdict.reason, 0.0, None, kind=verdict.kind)
            outcomes = [never] * len(trials)
        else:
            outcomes = run_stack(cell, setting, defended, worker, trials)
        yield [
            _record(cell, setting, defended, trial, outcome, provenance)
            for trial, outcome in zip(trials, outcomes, strict=True)
        ]


def stacks(due: Sequence[int], trials: int, plain: Round) -> list[list[int]]:
    """Cut the due trials at fixed places, as many to a stack as the memory allows.

    The places depend on the protocol alone, so that a run finished after a kill hands an attack
    the stacks of a run that was never killed.
    """
    update_bytes = sum(weight.nbytes for weight in plain.victim.parameters())
    size = max(1, min(_STACK_TRIALS, trials, _STACK_BYTES // (update_bytes * plain.answers)))
    starts = range(0, trials, size)
    cut = [[trial for trial in due if start <= trial < start + size] for start in starts]
    return [stack for stack in cut if stack]


def run_stack(
    cell: Cell, setting: Setting, defended: DefendedRound, worker: Worker, trials: Sequence[int]
) -> list[Outcome]:
    """Return what one stack of trials came to in the worker, trial by trial, judged."""
    outcomes: dict[int, Outcome] = {}
    seen: dict[int, Observation] = {}
    for trial in trials:
        try:
            seen[trial] = _observe(cell, setting, defended, defended.update(trial), trial)
        except (DefenseError, NotApplicable) as error:
            kind: FailureKind = "model_refused" if isinstance(error, RefusedError) else "defense"
            outcomes[trial] = Outcome(None, "failed", str(error), 0.0, None, kind=kind)
    if seen:
        answers = worker.reconstruct(cell.attack, Stack(list(seen.values())))
        validated = [_validate(setting, answer) for answer in answers]
        outcomes |= dict(zip(seen, validated, strict=True))
    return [outcomes[trial] for trial in trials]


def negotiate(
    cell: Cell, setting: Setting, shared: DefendedRound, worker: Worker, trial: int
) -> tuple[Verdict, DefendedRound]:
    """Ask whether attack, defense and protocol fit, and return the round they meet in.

    A defense that fails is told trial by trial, not here.
    """
    defended = shared
    malicious = cell.attack.manifest.server == "malicious"
    if malicious and setting.protocol.threat.server != "malicious":
        said = "needs a malicious server; the protocol's is honest but curious"
        return Verdict("not_applicable", said), shared
    try:
        if malicious:
            defended = _corrupted(cell, setting, shared, worker)
        seen = _observe(cell, setting, defended, defended.update(trial), trial)
    except NotApplicable as reason:
        return Verdict("not_applicable", str(reason)), defended
    except DefenseError:
        return Verdict("applies", None), defended
    except PluginError as error:  # a malicious server chose no parameters that fit
        return Verdict("failed", str(error), kind="crashed"), defended
    verdict = worker.applies(cell.attack, seen)
    networks = {
        Grant.PUBLIC_NETWORK: setting.public_network,
        Grant.TRAINED_INVERTER: setting.inverter(cell.seed, cell.defense),
    }
    lacks = [networks.get(grant) for grant in verdict.missing]
    if len(lacks) == 1 and isinstance(lacks[0], DataUnavailable):
        verdict = Verdict("unavailable", str(lacks[0]))
    return verdict, defended


def _corrupted(
    cell: Cell, setting: Setting, shared: DefendedRound, worker: Worker
) -> DefendedRound:
    """Return the round whose victim has the parameters that a malicious server chose.

    Raises:
        PluginError: it chose none that fit.
        NotApplicable: it cannot corrupt such a victim.
    """
    plain, protocol = shared.plain, cell.protocol
    known = protocol.threat.model().known(
        setting.facts(None), _public(cell, shared), protocol.federation.local()
    )
    draws = generator(plain.seed, protocol.name, "corrupt", cell.attack.label)
    chosen = worker.corrupt(cell.attack, plain.victim, known, draws)
    return DefendedRound(plain.with_parameters(chosen), shared.defense, shared.label, shared.key)


def _observe(
    cell: Cell, setting: Setting, defended: DefendedRound, update: Update, trial: int
) -> Observation:
    """Let through the door what this attack may see of a trial."""
    plain, protocol = defended.plain, cell.protocol
    control: dict[Grant, Any] = {}
    if Grant.TRUTH in cell.attack.manifest.grants:
        control[Grant.TRUTH] = setting.answer(plain.truth(trial)).clone()
    if Grant.OTHER_UPDATE in cell.attack.manifest.grants and protocol.trials > 1:
        control[Grant.OTHER_UPDATE] = defended.update((trial + 1) % protocol.trials)
    names = (protocol.name, "attack", cell.attack.label, cell.defense.label, trial)
    facts = setting.facts(plain.truth(trial))
    inverter = setting.inverter(cell.seed, cell.defense)
    if not isinstance(inverter, DataUnavailable):
        facts[Grant.TRAINED_INVERTER] = inverter
    if Grant.CLIENT_KEYS in protocol.threat.grants:
        facts[Grant.CLIENT_KEYS] = defended.client_keys
    return observe(
        protocol.threat.model(),
        update=update,
        model=defended.server_model,
        budget=protocol.budget.budget(),
        generator=generator(plain.seed, *names),
        facts=facts,
        defense=_public(cell, defended),
        control=control,
        local=protocol.federation.local(),
        later=defended.later(trial),
        initial=defended.initial,
    )


def _public(cell: Cell, defended: DefendedRound) -> dict[str, Any]:
    """Return a defense's public description."""
    return {"name": cell.defense.manifest.name, **defended.description}


def _validate(setting: Setting, outcome: Outcome) -> Outcome:
    """Return an outcome as the harness takes it: an answer with a fault is a failed trial."""
    answer = outcome.reconstruction
    if answer is None:
        return outcome
    wrong = setting.fault(answer)
    if wrong is not None:
        kind: FailureKind = "refused" if answer.failure is not None else "invalid_answer"
        outcome = replace(outcome, reconstruction=None, status="failed", reason=wrong, kind=kind)
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
    truth = defended.plain.truth(trial)
    answer = outcome.reconstruction or setting.prior(truth)
    scores = setting.score(truth, answer)
    if outcome.kind not in ("defense", "model_refused"):  # else there may be no input to score
        scores |= _scores_of_input(setting, defended, trial, answer)
    return cell.record(
        provenance,
        trial=trial,
        status=outcome.status,
        kind=outcome.kind,
        reason=outcome.reason,
        scores=scores,
        excerpt=setting.excerpt(truth, answer) if outcome.reconstruction else None,
        seconds=outcome.seconds,
        gradient_evaluations=outcome.gradient_evaluations,
        peak_bytes=outcome.peak_bytes,
    )


def _scores_of_input(
    setting: Setting, defended: DefendedRound, trial: int, answer: Reconstruction
) -> dict[str, float | None]:
    """Return the scores against what a defense made of the truth; none where it is the same."""
    given = defended.batch(trial)
    put, truth = setting.answer(given), setting.answer(defended.plain.truth(trial))
    if put.shape != truth.shape or torch.equal(put, truth):
        return {}
    return {f"{name}{OF_INPUT}": score for name, score in setting.score(given, answer).items()}
