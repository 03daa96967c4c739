"""One round: a victim, the clients' private batches, and the updates every attack will read.

Honest-but-curious attacks share the updates, so one (defense, seed, trial) is computed once; a
defense that leaves model and batch alone shares the undefended gradient too.
"""

from __future__ import annotations

import copy
import math
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property, lru_cache

import numpy as np
from torch import Tensor

from benchmark.contract import Batch, Defense, Update, Victim
from benchmark.errors import NotApplicable, PluginError
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
            return self.defense.harden(self.plain.victim, draws)

    @cached_property
    def server_model(self) -> Victim:
        """The model as the server knows it."""
        with self._named():
            return self.defense.server_view(self.model)

    def update(self, trial: int) -> Update:
        """Return what the client sends in a trial.

        Raises:
            PluginError: a hook failed.
            NotApplicable: the defense does not fit the victim.
        """
        if trial not in self._updates:
            with self._named():
                self._updates[trial] = self._protected(trial)
        return self._updates[trial]

    def sent_nonsense(self, trial: int) -> bool:
        """Tell whether a trial's update was sent, and holds NaN or infinity."""
        return trial in self._updates and not math.isfinite(self._updates[trial].norm())

    def _protected(self, trial: int) -> Update:
        given = copy.deepcopy(self.plain.truth(trial))
        batch = self.defense.protect_batch(given, self.model, self._draws("batch", trial))
        if self.model is self.plain.victim and batch is given:
            update = self.plain.update(trial)
        else:
            update = self.plain.computed(self.model, batch, trial)
        return self.defense.protect_update(update, self.model, self._draws("update", trial))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn whatever a hook raises into one line that names the defense."""
        try:
            yield
        except (PluginError, NotApplicable):
            raise
        except Exception as error:
            said = " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
            raise PluginError(f"defense {self.label}: {said}") from error

    def _draws(self, *use: str | int) -> np.random.Generator:
        return self.key.draws(self.plain.seed, *self._names(*use))

    def _names(self, *use: str | int) -> tuple[str | int, ...]:
        return self.plain.name, "defense", self.label, *use


class _Kept(OrderedDict[int, Update]):
    """Updates by trial; the oldest goes when there is no room, and is computed again."""

    def __setitem__(self, trial: int, update: Update) -> None:
        super().__setitem__(trial, update)
        while len(self) > 1 and sum(kept.nbytes for kept in self.values()) > _KEPT_BYTES:
            self.popitem(last=False)
