"""What an attack is: Observation in, Reconstruction out."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch

from benchmark.contract.grants import Grant
from benchmark.contract.types import Knowledge, Observation, Reconstruction, Stack
from benchmark.contract.victim import Victim


class Attack(ABC):
    """One method of reading a private batch from an update.

    A submission is a frozen dataclass whose fields are its hyperparameters. Seeding, timing,
    clipping, pairing, scoring and retrying are the harness's.
    """

    @property
    def needs(self) -> frozenset[Grant]:
        """Facts without which the method does not run; the cell is `not_applicable` without them.

        A constant of the class, `needs: ClassVar = frozenset({...})`, or a property where it
        depends on the hyperparameters.
        """
        return frozenset()

    def applies(self, seen: Observation) -> None:  # noqa: B027  (most methods fit anywhere)
        """Raise NotApplicable, with the reason, where the method does not fit.

        Asked once a cell, before any trial, with tensors that carry shapes and no values: a
        method may decline a victim or an update that lacks what it reads, never a hard image.
        """

    @abstractmethod
    def reconstruct(self, seen: Observation) -> Reconstruction:
        """Reconstruct one trial's batch."""

    def reconstruct_stack(self, stack: Stack) -> list[Reconstruction]:
        """Reconstruct every trial of a stack, in order; override to advance them together.

        Both ways must give the same answer, trial by trial.
        """
        return [self.reconstruct(seen) for seen in stack]


class MaliciousAttack(Attack):
    """An attack by a server that also chooses the parameters it sends.

    Its clients compute updates of their own on the corrupted model. What the method put into the
    parameters it reads back from `seen.model`, which is the corrupted one.
    """

    @abstractmethod
    def corrupt(self, model: Victim, known: Knowledge, generator: torch.Generator) -> Victim:
        """Return the model to send, before any client computes an update.

        Args:
            model: a copy of the victim, the method's own to change in place. Of what comes back
                only parameters count: architecture, buffers and dropout stay the client's.
            known: what the protocol grants ahead: batch size, length, public text.
            generator: the attack's randomness, one draw for all trials of a seed.
        """
