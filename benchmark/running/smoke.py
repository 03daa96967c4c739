"""A dry run: one small trial of each cell, cut to seconds and a first step; nothing is recorded.

The whole round is drawn, so that too few users or images are noticed, and attacks are asked whether
they fit it. The trial they run is of the same protocol with a smaller batch and shorter sequences;
what memory or time the whole one takes, a dry run does not see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from tabulate import tabulate
from torch import Tensor

from benchmark.cell import Cell, run_cell
from benchmark.contract import Grant, Knowledge, Observation, Stack, Victim
from benchmark.errors import BenchmarkError, DataUnavailable
from benchmark.federation import DefendedRound
from benchmark.protocol import Protocol
from benchmark.records import Provenance, Status
from benchmark.registry import Submission
from benchmark.running.plan import Group
from benchmark.toolbox.matching import SearchAttack
from benchmark.tracks import Setting
from benchmark.worker import Outcome, Verdict, Worker

_MOST = {"batch_size": 2, "users": 2, "length": 16}  # of a trial; more than one stays so
_GRADIENTS = 1  # of a search whose first step takes no more
_SECONDS = 10.0  # of any attack; thousands of tokens on a large model take minutes to read
_WORDS: dict[Status, str] = {
    "completed": "ok",
    "not_applicable": "n/a",
    "unavailable": "unavailable",
    "failed": "failed",
    "timed_out": "failed",
}


@dataclass(frozen=True)
class Sparing:
    """A worker whose attacks are asked about a whole trial and budget, and given small ones.

    Attributes:
        worker: runs the attacks.
        whole: what may be granted of the whole trial.
    """

    worker: Worker
    whole: Mapping[Grant, Any]

    def load(self, submission: Submission) -> None:
        """Import an attack."""
        self.worker.load(submission)

    def corrupt(
        self, submission: Submission, model: Victim, known: Knowledge, draws: torch.Generator
    ) -> dict[str, Tensor]:
        """Have a malicious attack choose the parameters to send."""
        return self.worker.corrupt(submission, model, known, draws)

    def applies(self, submission: Submission, seen: Observation) -> Verdict:
        """Ask an attack whether it fits the whole trial; the shapes of its update are the same."""
        known = seen.knowledge
        facts = {grant.value: fact for grant, fact in self.whole.items()}
        granted = {name: fact for name, fact in facts.items() if getattr(known, name) is not None}
        return self.worker.applies(submission, replace(seen, knowledge=replace(known, **granted)))

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Run an attack on a stack."""
        return self.worker.reconstruct(submission, Stack([_poor(submission, s) for s in stack]))


@dataclass(frozen=True)
class Smoked:
    """What became of one cell, on a small trial, and why."""

    cell: Cell
    status: Status
    reason: str | None

    @property
    def word(self) -> str:
        """What it came to; an attack that had less time than its protocol grants did not fail."""
        spared = self.cell.protocol.budget.seconds > _SECONDS
        return "cut short" if self.status == "timed_out" and spared else _WORDS[self.status]


def smoke(
    groups: Sequence[Group],
    *,
    load: Callable[[Group], Setting],
    worker_of: Callable[[Submission], Worker],
    provenance: Provenance,
) -> Iterator[Smoked]:
    """Run the first trial of each cell under the first seed, small.

    Args:
        groups: the groups of a run.
        load: makes the setting of a group's protocol, whole or small.
        worker_of: which worker runs a submission.
        provenance: where this runs.
    """
    for protocol in dict.fromkeys(group.protocol for group in groups):
        whole = [group for group in groups if group.protocol == protocol]
        small = [replace(group, protocol=_small(protocol)) for group in whole]
        seed = whole[0].seeds[0]
        try:
            facts = _first_facts(load(whole[0]), seed)
            setting = load(small[0])
            plain = setting.round(seed)
        except BenchmarkError as error:
            status: Status = "unavailable" if isinstance(error, DataUnavailable) else "failed"
            cells = (cell for group in small for cell in group.cells(seed))
            yield from (Smoked(cell, status, str(error)) for cell in cells)
            continue
        for group in small:
            defended = DefendedRound(plain, group.defense.build(), group.defense.label)
            for cell in group.cells(seed):
                worker = Sparing(worker_of(cell.attack), facts)
                ((record,),) = run_cell(cell, setting, defended, worker, [0], provenance)
                yield Smoked(cell, record.status, record.reason)


def table(made: Sequence[Smoked]) -> str:
    """Return a line for the attacks of a protocol and defense that came to the same."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for one in made:
        cell = one.cell
        key = (cell.protocol.name, cell.defense.label, one.word, one.reason or "")
        lines.setdefault(key, []).append(cell.attack.label)
    rows = [(*key[:3], ", ".join(attacks), key[3]) for key, attacks in lines.items()]
    heads = ["protocol", "defense", "came to", "attacks", "reason"]
    return tabulate(rows, heads, maxcolwidths=[None, None, None, 40, None])


def failed(made: Sequence[Smoked]) -> bool:
    """Tell whether any cell failed."""
    return any(one.word == "failed" for one in made)


def _small(protocol: Protocol) -> Protocol:
    """Return a protocol of the same name whose trials are small."""
    content = protocol.model_dump()
    for part in (content["data"], content["federation"]):
        part.update({key: min(part[key], most) for key, most in _MOST.items() if key in part})
    return type(protocol).model_validate(content)


def _first_facts(whole: Setting, seed: int) -> dict[Grant, Any]:
    """Return what may be granted of a seed's first trial.

    Raises:
        BenchmarkError: its round cannot be made.
    """
    return whole.facts(whole.round(seed).truths[0])


def _poor(submission: Submission, seen: Observation) -> Observation:
    """Return an observation that grants seconds, and the gradients of a search's first step."""
    least, budget = _GRADIENTS, seen.budget
    attack = None if submission.outside else submission.build()
    if isinstance(attack, SearchAttack):
        plan = attack.plan(seen)
        least = max(least, plan.restarts * plan.optimiser.most)
    poor = replace(
        budget,
        seconds=min(budget.seconds, _SECONDS),
        gradient_evaluations=min(budget.gradient_evaluations, least),
    )
    return replace(seen, budget=poor)
