"""The talk with one outside defense in its child: a hook is called, and its answer judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmark.contract import Update, Victim
from benchmark.errors import DefenseError, NotApplicable, PluginError, RefusedError
from benchmark.registry import Submission
from benchmark.running.channel import Answer
from benchmark.running.exchange import save_model
from benchmark.running.heard import Heard
from benchmark.running.hooks import OTHERS, Hook, Introduction, move, packed, unpacked
from benchmark.running.limits import machine_bytes
from benchmark.running.process import NONSENSE, Child
from benchmark.running.scratch import Scratch

_HOOK_SECONDS = 120.0
"""Of one call of a hook."""
_MOST_KILLS = 3
"""Calls of a hook in a row on which a process may die before none is made any more."""
_MEMORY = 5 * 2**30  # bytes of a child
_OWN_BYTES = 2**20  # of an answer, beside its tensors
_MODEL = "model.safetensors"


class Link:
    """A child that is a defense, started again where it died.

    Args:
        submission: the defense.
        device: where victims live.
        scratch: holds what the child is given.
        heard: takes what it prints.

    Raises:
        PluginError: it cannot be loaded or described, or has a hook that crosses no wall.
    """

    def __init__(
        self, submission: Submission, device: torch.device, scratch: Scratch, heard: Heard
    ) -> None:
        self._submission, self._device = submission, device
        self._scratch, self._heard = scratch, heard
        self._kills: Counter[Hook] = Counter()
        self._shown: tuple[Victim, list[int]] | None = None
        self._child = self._started()
        if self._child.unfit:
            raise PluginError(f"defense {submission.label}: {self._child.reason}")
        try:
            said = Introduction.model_validate_json(self._child.introduction)
        except ValueError:
            raise PluginError(f"defense {submission.label}: {NONSENSE}") from None
        self.hooks, self.description = said.hooks, said.description
        if others := [name for name in OTHERS if name in said.hooks]:
            why = f"and its {', '.join(others)} cannot be called behind the wall"
            name = f"defense {submission.label} comes from outside"
            raise PluginError(f"{name}, {why}: read it, then trust it by --trust-plugins")

    def end(self) -> None:
        """End the process."""
        self._child.kill()

    def call(
        self,
        hook: Hook,
        given: Mapping[str, Tensor],
        model: Victim,
        draws: np.random.Generator,
        *,
        wanted: Mapping[str, Tensor],
        gradient: Callable[[dict[str, Tensor]], Update] | None = None,
    ) -> dict[str, Tensor] | None:
        """Call a hook; its generator goes on where the hook left it.

        Args:
            hook: which.
            given: the tensors it is given.
            model: the victim.
            draws: the generator it is given.
            wanted: tensors of the names, and of at least half the size, of those it may make.
            gradient: answers what the hook asks of a batch, whose tensors bear names of `given`.

        Returns:
            What it made; None where that is the very thing it was given.

        Raises:
            DefenseError: whatever went wrong.
            NotApplicable: it does not fit the victim.
        """
        self._ready(hook, model)
        largest = 2 * sum(each.nbytes for each in (*wanted.values(), *given.values())) + _OWN_BYTES
        answer, data = self._give(hook, given, draws, largest)
        while answer.status == "asks" and gradient is not None:
            batch, _ = self._read(hook, data, (*given, "masked"))
            answer, data = self._give(hook, gradient(batch), None, largest)
        if answer.status == "not_applicable":
            raise NotApplicable(answer.reason or "")
        if answer.kind == "refused":
            raise RefusedError(answer.reason or "")
        if answer.status not in ("completed", "same"):
            raise self.blame(hook, answer.reason or NONSENSE)
        made, state = self._read(hook, data, tuple(wanted))
        if state is not None:
            move(draws, state)
        return None if answer.status == "same" else made

    def blame(self, hook: Hook, said: str) -> DefenseError:
        """Return the error that lays something to the defense."""
        return DefenseError(f"defense {self._submission.label}: {hook}: {said}")

    def _started(self) -> Child:
        allowed, exchange = min(_MEMORY, machine_bytes()), self._scratch.for_child()
        child = Child(self._submission, self._device, exchange, allowed=allowed, wall=True)
        self._heard.add(child.ear.take())
        return child

    def _ready(self, hook: Hook, model: Victim) -> None:
        """Have a child that lives hold the model as it is now."""
        if self._kills[hook] >= _MOST_KILLS:
            raise self.blame(hook, f"not called: its process died {_MOST_KILLS} times in a row")
        if not self._child.alive:
            self._child, self._shown = self._started(), None
        versions = [each._version for each in model.state_dict(keep_vars=True).values()]
        if self._shown is not None and self._shown[0] is model and self._shown[1] == versions:
            return
        file = self._child.exchange / _MODEL
        file.unlink(missing_ok=True)
        save_model(model, file)
        file.chmod(0o644)
        self._ask(hook, {"what": "model", "model": str(file)}, 0)
        self._shown = model, versions

    def _give(
        self,
        hook: Hook,
        given: Mapping[str, Tensor],
        draws: np.random.Generator | None,
        largest: int,
    ) -> tuple[Answer, memoryview]:
        behind = packed(given, draws)
        told = {"size": sum(map(len, behind)), "names": list(given)}
        return self._ask(hook, {"what": hook, **told}, largest, behind)

    def _ask(
        self,
        hook: Hook,
        request: dict[str, Any],
        largest: int,
        behind: Sequence[memoryview] = (),
    ) -> tuple[Answer, memoryview]:
        answered = self._child.ask(request, _HOOK_SECONDS, largest=largest, behind=behind)
        self._heard.add(self._child.ear.take())
        if answered is None:
            self._kills[hook] += 1
            raise self.blame(hook, self._child.reason)
        if request["what"] != "model":
            self._kills[hook] = 0
        return answered[0]

    def _read(self, hook: Hook, data: memoryview, names: tuple[str, ...]) -> Any:  # noqa: ANN401
        try:
            return unpacked(data, names)
        except ValueError:
            self._child.kill()
            raise self.blame(hook, NONSENSE) from None
