"""One round: a victim, the clients' private batches, and the updates every attack will read.

Honest-but-curious attacks share the updates, so one (defense, seed, trial) is computed once; a
defense that leaves model and batch alone shares the undefended gradient too.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache, partial
from typing import Any

import numpy as np
from torch import Tensor

from benchmark.contract import Batch, Defense, Update, Victim, first_not_finite, update_fault
from benchmark.errors import DefenseError, NotApplicable, PluginError
from benchmark.federation.client import Client, Gradient, fedsgd
from benchmark.federation.kept import Kept
from benchmark.seeds import PUBLIC, Key, generator

_CLIENT = Client()
_KEPT_TRUTHS = 32  # private batches held in memory, those of a stack
KEPT_BYTES = 3 * 2**29
"""Updates that a round holds in memory at a time, and as many again of a defense before it."""


class Round:
    """The undefended round of one protocol under one seed.

    Args:
        name: the protocol's name; its randomness is its own.
        seed: the base of every draw.
        victim: the model the server sent.
        truths: the private batches, one a trial.
        client: how updates are made of them.
        answers: updates of each batch that the server sees, in as many rounds.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        victim: Victim,
        truths: Sequence[Batch],
        client: Client = _CLIENT,
        answers: int = 1,
    ) -> None:
        self.name, self.seed, self.victim, self.truths = name, seed, victim, truths
        self.client, self.answers = client, answers
        self._updates = Kept(KEPT_BYTES)
        self.truth = lru_cache(_KEPT_TRUTHS)(truths.__getitem__)
        """Returns the private batch of a trial; pictures are decoded when asked for."""

    @property
    def kept_bytes(self) -> int:
        """What the updates held may take; who has memory to spare may raise it."""
        return self._updates.most

    @kept_bytes.setter
    def kept_bytes(self, most: int) -> None:
        self._updates.most = most

    def update(self, trial: int, answer: int = 0) -> Update:
        """Return an undefended update of a trial's batch."""
        return self._updates.made(
            (trial, answer),
            lambda: self.computed(self.victim, self.truth(trial), trial, answer),
        )

    def kept(self, trial: int, answer: int = 0) -> Update | None:
        """Return an undefended update if it has been computed, and is still held."""
        return self._updates.get((trial, answer))

    def computed(
        self,
        model: Victim,
        batch: Batch,
        trial: int,
        answer: int = 0,
        protect: Callable[[Victim, Batch, Gradient], Update] | None = None,
    ) -> Update:
        """Compute the update of a model on a trial's batch, or on what a defense made of it.

        Args:
            model: the model.
            batch: the batch.
            trial: names the client's draws.
            answer: likewise.
            protect: makes a gradient in place of the client, with the client's own in hand.
        """
        use = _drawn_for(trial, answer)
        dropped = generator(self.seed, self.name, "client", *use)

        def plain(model: Victim, batch: Batch) -> Update:
            return fedsgd(model, batch, dropped, dropout=self.client.dropout)

        def protected(model: Victim, batch: Batch) -> Update:
            return plain(model, batch) if protect is None else protect(model, batch, plain)

        order = generator(self.seed, self.name, "order", *use)
        return self.client.update(model, batch, protected, order)

    def with_parameters(self, chosen: Mapping[str, Tensor]) -> Round:
        """Return the round of the same batches on the victim with other parameters.

        Raises:
            PluginError: a parameter is missing, unknown, or of another shape or type.
        """
        victim = copy.deepcopy(self.victim)
        own = victim.weights()
        if wrong := sorted(own.keys() ^ chosen.keys()):
            raise PluginError(f"the parameters sent are not the victim's: {wrong[0]}")
        for name, weight in own.items():
            sent = chosen[name]
            if sent.shape != weight.shape or sent.dtype != weight.dtype:
                raise PluginError(
                    f"{name} sent as {tuple(sent.shape)} of {sent.dtype}; wanted "
                    f"{tuple(weight.shape)} of {weight.dtype}"
                )
            weight.data.copy_(sent)
        made = Round(self.name, self.seed, victim, self.truths, self.client, self.answers)
        made.kept_bytes = 0  # no other attack sends these parameters, and asks for these updates
        return made


class DefendedRound:
    """A round behind one defense.

    Args:
        plain: the undefended round.
        defense: the defense.
        label: its name with arguments; its randomness is its own.
        key: what the client's secret draws hang on.
    """

    def __init__(self, plain: Round, defense: Defense, label: str, key: Key = PUBLIC) -> None:
        self.plain, self.defense, self.label, self.key = plain, defense, label, key
        self._updates = Kept(plain.kept_bytes)

    @cached_property
    def model(self) -> Victim:
        """The victim the client trains; NotApplicable where the defense fits no such victim."""
        with self._named():
            draws = generator(self.plain.seed, *self._names("harden"))
            return _is_a(Victim, "harden", self.defense.harden(self.plain.victim, draws))

    @cached_property
    def keyed(self) -> Defense:
        """The defense with what the clients of this round share in secret."""
        with self._named():
            return _is_a(Defense, "keyed", self.defense.keyed(self.model, self._draws("keyed")))

    @cached_property
    def client_keys(self) -> dict[str, Tensor]:
        """What a client of this round could tell the server of what all share."""
        with self._named():
            told = self.keyed.client_keys()
            return {name: _is_a(Tensor, "client_keys", key) for name, key in told.items()}

    @cached_property
    def server_model(self) -> Victim:
        """The model as the server holds it."""
        with self._named():
            return _is_a(Victim, "server_view", self.keyed.server_view(self.model))

    @cached_property
    def initial(self) -> dict[str, Tensor] | None:
        """The weights that the server made, where it holds others."""
        if self.server_model is self.model:
            return None
        return {name: weight.detach() for name, weight in self.model.weights().items()}

    @cached_property
    def description(self) -> dict[str, Any]:
        """What the adversary may know of the defense, in plain words."""
        with self._named():
            return dict(self.defense.describe())

    def update(self, trial: int, answer: int = 0) -> Update:
        """Return what the client sends in a trial, in the first round or a later one.

        Raises:
            DefenseError: a hook failed, or what is sent is no update of the model.
            NotApplicable: the defense does not fit the victim.
        """
        return self._updates.made((trial, answer), partial(self._protected, trial, answer))

    def later(self, trial: int) -> tuple[Update, ...]:
        """Return what the client sends in the rounds after the first; raises as `update` does."""
        return tuple(self.update(trial, answer) for answer in range(1, self.plain.answers))

    def batch(self, trial: int) -> Batch:
        """Return what the client computes its first update on; raises as `update` does.

        It is the truth itself, where the defense leaves batches alone.
        """
        truth = self.plain.truth(trial)
        if type(self.keyed).protect_batch is Defense.protect_batch:
            return truth
        with self._named():
            return self._batch(copy.deepcopy(truth), *_drawn_for(trial, 0))

    def _batch(self, given: Batch, *use: int) -> Batch:
        batch = self.keyed.protect_batch(given, self.model, self._draws("batch", *use))
        made: Batch = _is_a(type(given), "protect_batch", batch)
        return made

    def _protected(self, trial: int, answer: int) -> Update:
        plain, model, defense = self.plain, self.model, self.keyed
        given, use = copy.deepcopy(plain.truth(trial)), _drawn_for(trial, answer)
        with self._named():
            batch = self._batch(given, *use)
            if type(defense).compute_update is not Defense.compute_update:
                draws = self._draws("compute", *use)

                def protect(model: Victim, batch: Batch, gradient: Gradient) -> Update:
                    return defense.compute_update(batch, model, partial(gradient, model), draws)

                update = plain.computed(model, batch, trial, answer, protect)
            elif batch is given and model is plain.victim:
                update = plain.update(trial, answer)
            else:
                update = plain.computed(model, batch, trial, answer)
            sent = defense.protect_update(update, model, self._draws("update", *use))
        wrong = update_fault(sent, model.weights()) or self._spoilt(sent, trial, answer)
        if wrong is not None:
            raise DefenseError(f"defense {self.label}: {wrong}")
        return sent

    def _spoilt(self, sent: Update, trial: int, answer: int) -> str | None:
        """Return what the defense sent that is not finite, where the client's own update was."""
        own = self.plain.kept(trial, answer)
        if sent is own or (name := first_not_finite(sent)) is None:
            return None
        if first_not_finite(self.plain.update(trial, answer)) is not None:
            return None
        return f"returned {name} with values that are not finite"

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn whatever a hook raises into one line that names the defense."""
        try:
            yield
        except (DefenseError, NotApplicable):
            raise
        except (Exception, SystemExit) as error:
            said = " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
            raise DefenseError(f"defense {self.label}: {said}") from error

    def _draws(self, *use: str | int) -> np.random.Generator:
        return self.key.draws(self.plain.seed, *self._names(*use))

    def _names(self, *use: str | int) -> tuple[str | int, ...]:
        return self.plain.name, "defense", self.label, *use


def _drawn_for(trial: int, answer: int) -> tuple[int, ...]:
    """Return what names the draws of an update: of a first round, its trial alone."""
    return (trial, answer) if answer else (trial,)


def _is_a(kind: type, hook: str, made: Any) -> Any:  # noqa: ANN401  (of that kind)
    """Return what a hook made.

    Raises:
        TypeError: it made something else.
    """
    if not isinstance(made, kind):
        raise TypeError(f"{hook} returned a {type(made).__name__}; wanted a {kind.__name__}")
    return made
