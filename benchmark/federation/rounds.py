"""One round: a victim, the clients' private batches, and the updates every attack will read.

Honest-but-curious attacks share the updates, so one (defense, seed, trial) is computed once; a
defense that leaves model and batch alone shares the undefended gradient too.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

import torch
from torch import nn

from benchmark.contract import Batch, DataStatistics, Defense, Update
from benchmark.data import ImageSet
from benchmark.errors import PluginError, ProtocolError
from benchmark.federation.client import fedsgd
from benchmark.seeds import generator
from benchmark.victims import Victim

_KEPT_BYTES = 3 * 2**29  # updates held in memory at a time, each of the two caches


class Round:
    """The undefended round of one protocol under one seed.

    Args:
        name: the protocol's name; its randomness is its own.
        seed: the base of every draw.
        victim: the model the server sent.
        data: the private split.
        statistics: of the public split.
        trials: updates in the round.
        batch_size: images an update.
        distinct_labels: no label stands twice in a batch.
    """

    def __init__(
        self,
        name: str,
        seed: int,
        victim: Victim,
        data: ImageSet,
        statistics: DataStatistics,
        *,
        trials: int,
        batch_size: int,
        distinct_labels: bool = False,
    ) -> None:
        if trials * batch_size > len(data.images):
            raise ProtocolError(
                f"{name}: {trials} trials of {batch_size} images wanted, {data.name} has "
                f"{len(data.images)} in its {data.split} split"
            )
        self.name, self.seed, self.victim, self.statistics = name, seed, victim, statistics
        order = torch.randperm(len(data.images), generator=generator(seed, data.name, "trials"))
        chosen = list(order[: trials * batch_size].view(trials, batch_size))
        if distinct_labels:
            chosen = _distinct(order.tolist(), data.labels.tolist(), trials, batch_size)
            if len(chosen) < trials:
                raise ProtocolError(
                    f"{name}: {trials} batches of {batch_size} distinct labels wanted, "
                    f"{data.name} has {len(chosen)} in its {data.split} split"
                )
        self.truths = [Batch(data.images[rows], data.labels[rows]) for rows in chosen]
        self._updates = _Kept()

    def update(self, trial: int) -> Update:
        """Return the undefended update of a trial."""
        if trial not in self._updates:
            self._updates[trial] = fedsgd(self.victim, self.truths[trial])
        return self._updates[trial]


class DefendedRound:
    """A round behind one defense.

    Args:
        plain: the undefended round.
        defense: the defense.
        label: its name with arguments; its randomness is its own.
    """

    def __init__(self, plain: Round, defense: Defense, label: str) -> None:
        self.plain, self.defense, self.label = plain, defense, label
        self._updates = _Kept()

    @cached_property
    def model(self) -> nn.Module:
        """The victim the client trains."""
        with self._named():
            return self.defense.harden(self.plain.victim, self._draws("harden"))

    @cached_property
    def server_model(self) -> nn.Module:
        """The model as the server knows it."""
        with self._named():
            return self.defense.server_view(self.model)

    def update(self, trial: int) -> Update:
        """Return what the client sends in a trial.

        Raises:
            PluginError: a hook failed.
        """
        if trial not in self._updates:
            with self._named():
                self._updates[trial] = self._protected(trial)
        return self._updates[trial]

    def sent_nonsense(self, trial: int) -> bool:
        """Tell whether a trial's update was sent, and holds NaN or infinity."""
        return trial in self._updates and not math.isfinite(self._updates[trial].norm())

    def _protected(self, trial: int) -> Update:
        truth = self.plain.truths[trial]
        given = Batch(truth.images.clone(), truth.labels.clone())
        batch = self.defense.protect_batch(given, self.model, self._draws("batch", trial))
        if self.model is self.plain.victim and batch is given:
            update = self.plain.update(trial)
        else:
            assert isinstance(self.model, Victim)
            update = fedsgd(self.model, batch)
        return self.defense.protect_update(update, self.model, self._draws("update", trial))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Turn whatever a hook raises into one line that names the defense."""
        try:
            yield
        except PluginError:
            raise
        except Exception as error:
            said = " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
            raise PluginError(f"defense {self.label}: {said}") from error

    def _draws(self, *use: str | int) -> torch.Generator:
        return generator(self.plain.seed, self.plain.name, "defense", self.label, *use)


def _distinct(order: list[int], labels: list[int], trials: int, batch: int) -> list[torch.Tensor]:
    """Return batches in which no label stands twice: each takes the next image that fits."""
    chosen: list[torch.Tensor] = []
    while len(chosen) < trials:
        picked: dict[int, int] = {}  # by label
        for row in order:
            if len(picked) == batch:
                break
            picked.setdefault(labels[row], row)
        if len(picked) < batch:
            break
        taken = set(picked.values())
        order = [row for row in order if row not in taken]
        chosen.append(torch.tensor(list(picked.values())))
    return chosen


class _Kept(OrderedDict[int, Update]):
    """Updates by trial; the oldest goes when there is no room, and is computed again."""

    def __setitem__(self, trial: int, update: Update) -> None:
        super().__setitem__(trial, update)
        while len(self) > 1 and sum(kept.nbytes for kept in self.values()) > _KEPT_BYTES:
            self.popitem(last=False)
