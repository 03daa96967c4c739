"""One round: a victim, the clients' private batches, and the updates every attack will read.

Honest-but-curious attacks share the updates, so one (defense, seed, trial) is computed once; a
defense that leaves model and batch alone shares the undefended gradient too.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from torch import Tensor

from benchmark.contract import Batch, Defense, Update, Victim, first_not_finite, update_fault
from benchmark.errors import DefenseError, NotApplicable, PluginError
from benchmark.federation.client import fedsgd
from benchmark.seeds import PUBLIC, Key, generator

_KEPT_TRUTHS = 32  # private batches held in memory, those of a stack
_KEPT_BYTES = 3 * 2**29  # updates held in memory at a time, each of the two caches


class Round:
    """The undefended round of one protocol under one seed.

    Args:
        name: the protocol's name; its randomness is its own.
        seed: the base of every draw.
        victim: the model the server sent.
        truths: the private batches, one a trial.
    """

    def __init__(self, name: str, seed: int, victim: Victim, truths: Sequence[Batch]) -> None:
        self.name, self.seed, self.victim, self.truths = name, seed, victim, truths
        self._updates = _Kept()
        self.truth = lru_cache(_KEPT_TRUTHS)(truths.__getitem__)
        """Returns the private batch of a trial; pictures are decoded when asked for."""

    def update(self, trial: int) -> Update:
        """Return the undefended update of a trial."""
        if trial not in self._updates:
            self._updates[trial] = self.computed(self.victim, self.truth(trial), trial)
        return self._updates[trial]

    def kept(self, trial: int) -> Update | None:
        """Return the undefended update of a trial if it has been computed, and is still held."""
        return self._updates.get(trial)

    def computed(self, model: Victim, batch: Batch, trial: int) -> Update:
        """Compute the update of a model on a trial's batch, or on what a defense made of it."""
        return fedsgd(model, batch, generator(self.seed, self.name, "client", trial))

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
        return Round(self.name, self.seed, victim, self.truths)


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
        self._updates = _Kept()

    @cached_property
    def model(self) -> Victim:
        """The victim the client trains; NotApplicable where the defense fits no such victim."""
        with self._named():
            draws = generator(self.plain.seed, *self._names("harden"))
            return _is_a(Victim, "harden", self.defense.harden(self.plain.victim, draws))

    @cached_property
    def server_model(self) -> Victim:
        """The model as the server knows it."""
        with self._named():
            return _is_a(Victim, "server_view", self.defense.server_view(self.model))

    @cached_property
    def description(self) -> dict[str, Any]:
        """What the adversary may know of the defense, in plain words."""
        with self._named():
            return dict(self.defense.describe())

    def update(self, trial: int) -> Update:
        """Return what the client sends in a trial.

        Raises:
            DefenseError: a hook failed, or what is sent is no update of the model.
            NotApplicable: the defense does not fit the victim.
        """
        if trial not in self._updates:
            self._updates[trial] = self._protected(trial)
        return self._updates[trial]

    def _protected(self, trial: int) -> Update:
        plain, model = self.plain, self.model
        given = copy.deepcopy(plain.truth(trial))

        def gradient(batch: Batch) -> Update:
            if batch is given and model is plain.victim:
                return plain.update(trial)
            return plain.computed(model, batch, trial)

        with self._named():
            batch = self.defense.protect_batch(given, model, self._draws("batch", trial))
            _is_a(type(given), "protect_batch", batch)
            update = self.defense.compute_update(
                batch, model, gradient, self._draws("compute", trial)
            )
            sent = self.defense.protect_update(update, model, self._draws("update", trial))
        wrong = update_fault(sent, model.weights()) or self._spoilt(sent, trial)
        if wrong is not None:
            raise DefenseError(f"defense {self.label}: {wrong}")
        return sent

    def _spoilt(self, sent: Update, trial: int) -> str | None:
        """Return what the defense sent that is not finite, where the client's own update was."""
        own = self.plain.kept(trial)
        if sent is own or (name := first_not_finite(sent)) is None:
            return None
        if first_not_finite(self.plain.update(trial)) is not None:
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


def _is_a(kind: type, hook: str, made: Any) -> Any:  # noqa: ANN401  (of that kind)
    """Return what a hook made.

    Raises:
        TypeError: it made something else.
    """
    if not isinstance(made, kind):
        raise TypeError(f"{hook} returned a {type(made).__name__}; wanted a {kind.__name__}")
    return made


class _Kept(OrderedDict[int, Update]):
    """Updates by trial; the oldest goes when there is no room, and is computed again."""

    def __setitem__(self, trial: int, update: Update) -> None:
        super().__setitem__(trial, update)
        while len(self) > 1 and sum(kept.nbytes for kept in self.values()) > _KEPT_BYTES:
            self.popitem(last=False)
