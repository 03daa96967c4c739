"""Outside defenses: what stands in for each calls its hooks in a child behind the wall."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.contract import Batch, Defense, Update, Victim
from benchmark.registry import Submission
from benchmark.running.heard import Heard
from benchmark.running.hooks import Hook, batch_fault, batch_of, parts
from benchmark.running.link import Link
from benchmark.running.scratch import Scratch
from benchmark.running.wall import demand


class Defending:
    """Keeps the children of outside defenses, one each.

    Use as a context: leaving it ends them and removes their files.

    Args:
        device: where victims live.
        heard: takes what they print.
    """

    def __init__(self, device: torch.device, heard: Heard | None = None) -> None:
        self._device, self._heard = device, heard or Heard()
        self._scratch: Scratch | None = None
        self._made: dict[str, StandIn] = {}

    def __enter__(self) -> Defending:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for made in self._made.values():
            made.link.end()
        if self._scratch is not None:
            self._scratch.remove()

    def guard(self, submission: Submission) -> Submission:
        """Return an outside defense as one whose hooks are called behind the wall; ours as it is.

        Raises:
            PluginError: there is no wall here.
        """
        if not submission.outside:
            return submission
        demand(submission)
        return GuardedDefense(submission.manifest, submission.folder, submission.arguments, self)

    def stand_in(self, submission: Submission) -> StandIn:
        """Return what stands in for a defense, which is loaded once.

        Raises:
            PluginError: it cannot be loaded or described, or has a hook that crosses no wall.
        """
        if submission.label not in self._made:
            self._scratch = self._scratch or Scratch()
            link = Link(submission, self._device, self._scratch, self._heard)
            hooks = {name: hook for name, hook in _HOOKS.items() if name in link.hooks}
            self._made[submission.label] = type("StandIn", (StandIn,), hooks)(link)
        return self._made[submission.label]


@dataclass(frozen=True)
class GuardedDefense(Submission):
    """A defense from outside, whose code is never imported here."""

    keeper: Defending | None = field(default=None, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process it goes unguarded, and is guarded there."""
        return Submission, (self.manifest, self.folder, self.arguments)

    def build(self) -> Defense:
        """Return what stands in for it."""
        assert self.keeper is not None
        return self.keeper.stand_in(self)


class StandIn(Defense):
    """Stands in for a defense; it has the hooks that this has, for the harness looks at that."""

    def __init__(self, link: Link) -> None:
        self.link = link

    def describe(self) -> Mapping[str, Any]:
        """Return what it said of itself when it was loaded."""
        return self.link.description

    def as_batch(self, hook: Hook, made: dict[str, Tensor], given: Batch, model: Victim) -> Batch:
        """Return the batch that tensors are, or blame the defense."""
        spec: Any = model.spec
        kinds = spec.classes if model.track == "vision" else spec.vocabulary
        if wrong := batch_fault(made, given, kinds=kinds):
            raise self.link.blame(hook, wrong)
        return batch_of(made, model.track)


def _protect_batch(self: StandIn, batch: Batch, model: Victim, draws: np.random.Generator) -> Batch:
    given = parts(batch)
    wanted = {"masked": torch.empty(0), **given}
    made = self.link.call("protect_batch", given, model, draws, wanted=wanted)
    return batch if made is None else self.as_batch("protect_batch", made, batch, model)


def _compute_update(
    self: StandIn,
    batch: Batch,
    model: Victim,
    gradient: Callable[[Batch], Update],
    draws: np.random.Generator,
) -> Update:
    def asked(made: dict[str, Tensor]) -> Update:
        return gradient(self.as_batch("compute_update", made, batch, model))

    given, wanted = parts(batch), model.weights()
    made = self.link.call("compute_update", given, model, draws, wanted=wanted, gradient=asked)
    return Update({name: each.to(model.device) for name, each in (made or {}).items()})


def _protect_update(
    self: StandIn, update: Update, model: Victim, draws: np.random.Generator
) -> Update:
    made = self.link.call("protect_update", update, model, draws, wanted=model.weights())
    if made is None:
        return update
    return Update({name: each.to(model.device) for name, each in made.items()})


_HOOKS: dict[str, Callable[..., Any]] = {
    "protect_batch": _protect_batch,
    "compute_update": _compute_update,
    "protect_update": _protect_update,
}
