"""Who runs an attack, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from typing import Protocol as Interface

import torch
from torch import Tensor

from benchmark.contract import Grant, Knowledge, Observation, Reconstruction, Stack, Victim
from benchmark.records import FailureKind, Status
from benchmark.registry import Submission


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
    kind: FailureKind | None = None
    """Of a trial that did not complete."""


@dataclass(frozen=True)
class Verdict:
    """Whether an attack fits a cell, and if not, why; `missing` are the facts it lacks."""

    status: Literal["applies", "not_applicable", "unavailable", "failed"]
    reason: str | None
    missing: tuple[Grant, ...] = ()
    kind: FailureKind | None = None


class Worker(Interface):
    """Where attacks run: in this process, or in a child that can be killed.

    Whatever an attack does, a worker answers.
    """

    def load(self, submission: Submission) -> None:
        """Import an attack, or raise PluginError."""

    def corrupt(
        self, submission: Submission, model: Victim, known: Knowledge, draws: torch.Generator
    ) -> dict[str, Tensor]:
        """Have a malicious attack choose the parameters to send, by name, or raise PluginError."""

    def applies(self, submission: Submission, seen: Observation) -> Verdict:
        """Ask an attack whether it fits; it sees the update's shapes, and no values."""

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Run an attack on a stack, and return one outcome a trial, in order."""
