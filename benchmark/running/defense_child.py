"""A child that is a defense: it is told of a hook, calls it, and hands back what that made.

A gradient that `compute_update` wants is the harness's: the child asks for it and waits. So nothing
that a hook did to its copy of the model would be in it, which is why a touched model is refused.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from torch import Tensor

from benchmark.contract import Batch, Defense, Update, Victim, update_fault
from benchmark.errors import NotApplicable, PluginError, RefusedError
from benchmark.running.channel import Answer, one_line, say
from benchmark.running.exchange import load_model
from benchmark.running.hooks import (
    Introduction,
    State,
    batch_of,
    move,
    overridden,
    packed,
    parts,
    unpacked,
)
from benchmark.running.inprocess import described
from benchmark.running.untouched import marks


def serve_defense(
    requests: BufferedReader, answers: IO[bytes], defense: Defense, device: torch.device
) -> None:
    """Introduce a defense, and call its hooks until no more is asked."""
    try:
        said = Introduction(hooks=overridden(defense), description=dict(defense.describe()))
    except (Exception, SystemExit) as error:
        say(answers, Answer(status="failed", reason=one_line(f"describe: {described(error)}")))
        return
    say(answers, Answer(status="ready"), [said.model_dump_json().encode()])
    model = None
    for line in requests:
        asked = json.loads(line)
        if asked["what"] == "model":
            model = load_model(Path(asked["model"]), device)
            say(answers, Answer(status="ready"))
            continue
        assert model is not None
        try:
            said_of = _Called(defense, model, asked, requests, answers).answer()
        except NotApplicable as reason:
            said_of = Answer(status="not_applicable", reason=one_line(str(reason))), ()
        except RefusedError as reason:
            told = one_line(str(reason))
            said_of = Answer(status="failed", reason=told, kind="refused"), ()
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            said_of = Answer(status="failed", reason=one_line(described(error))), ()
        say(answers, *said_of)


class _Called:
    """One call of a hook."""

    def __init__(
        self,
        defense: Defense,
        model: Victim,
        asked: dict[str, Any],
        requests: BufferedReader,
        answers: IO[bytes],
    ) -> None:
        self.defense, self.model, self.hook = defense, model, asked["what"]
        self.requests, self.answers = requests, answers
        self.given, state = self._came(asked)
        assert state is not None
        self.draws = move(np.random.Generator(np.random.Philox()), state)
        self.before = marks(model)
        self.versions = [each._version for each in self.given.values()]

    def answer(self) -> tuple[Answer, Sequence[memoryview]]:
        """Call it, and return what is said of it."""
        made, given = getattr(self, self.hook)()
        if [each._version for each in self.given.values()] != self.versions:
            raise PluginError("changed what it was given in place; wanted another")
        if made is given:
            return Answer(status="same"), packed({}, self.draws)
        if isinstance(made, Update) and (wrong := update_fault(made, self.model.weights())):
            raise PluginError(wrong)
        tensors = made if isinstance(made, Update) else parts(made)
        return Answer(status="completed"), packed(tensors, self.draws)

    def protect_batch(self) -> tuple[Batch, Batch]:
        given = self._batch()
        made = self.defense.protect_batch(given, self.model, self.draws)
        return _is_a(type(given), made), given

    def protect_update(self) -> tuple[Update, Update]:
        given = Update({n: each.to(self.model.device) for n, each in self.given.items()})
        made = self.defense.protect_update(given, self.model, self.draws)
        return _is_a(Update, made), given

    def compute_update(self) -> tuple[Update, None]:
        made = self.defense.compute_update(self._batch(), self.model, self._gradient, self.draws)
        return _is_a(Update, made), None

    def _came(self, asked: dict[str, Any]) -> tuple[dict[str, Tensor], State | None]:
        data = np.empty(asked["size"], np.uint8).data
        self.requests.readinto(data)
        return unpacked(data, asked["names"])

    def _batch(self) -> Batch:
        return batch_of(self.given, self.model.track)

    def _gradient(self, batch: Batch) -> Update:
        """Have the harness compute the gradient of a batch."""
        if marks(self.model) != self.before:
            said = "changes the model and asks for a gradient, which the harness would not change"
            raise PluginError(f"{said}: read it, then trust it by --trust-plugins")
        say(self.answers, Answer(status="asks"), packed(parts(batch), None))
        tensors, _ = self._came(json.loads(self.requests.readline()))
        return Update({n: each.to(self.model.device) for n, each in tensors.items()})


def _is_a(kind: type, made: Any) -> Any:  # noqa: ANN401  (of that kind)
    if not isinstance(made, kind):
        raise TypeError(f"returned a {type(made).__name__}; wanted a {kind.__name__}")
    return made
