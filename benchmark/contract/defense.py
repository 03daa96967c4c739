"""What a defense is: hooks in the order in which data meets them, each the identity by default."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from benchmark.contract.batch import Batch
from benchmark.contract.types import Update
from benchmark.contract.victim import Victim

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Defense:
    """Changes what a client sends, or the model that makes it.

    A submission is a frozen dataclass whose fields are its public parameters. A hook that leaves
    its argument as it is returns the very object it was given: the harness then shares the work.
    The truth is frozen before the first hook runs.

    `draws` is what the client draws in secret, one stream a trial and hook: a generator of numpy,
    whose 128-bit key no attack can try out (`torch.from_numpy(draws.standard_normal(shape,
    dtype=np.float32))`). What `harden` draws is public: the server sees the model that comes of it.
    """

    def keyed(self, model: Victim, draws: np.random.Generator) -> Defense:
        """Return the defense as the clients of one federation hold it, with what they share.

        It is asked for all hooks but `harden` and `describe`, so that no key is described.
        """
        return self

    def client_keys(self) -> Mapping[str, Tensor]:
        """Return, of the keyed defense, what every client holds and the server does not, by name.

        It passes where a threat model says that a client colludes with the server, and there alone.
        """
        return {}

    def harden(self, model: Victim, generator: torch.Generator) -> Victim:
        """Return the victim the client trains; raise `RefusedError` where it will not."""
        return model

    def protect_batch(self, batch: Batch, model: Victim, draws: np.random.Generator) -> Batch:
        """Return the batch the victim computes its update on."""
        return batch

    def compute_update(
        self,
        batch: Batch,
        model: Victim,
        gradient: Callable[[Batch], Update],
        draws: np.random.Generator,
    ) -> Update:
        """Return the update of a batch, by the gradient of its mean loss, or of its parts'."""
        return gradient(batch)

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        """Return the update the client sends."""
        return update

    def server_view(self, model: Victim) -> Victim:
        """Return the model as the server holds it; where that is another, it knows both."""
        return model

    def client_view(self, model: Victim) -> Victim:
        """Return the model as clients read it in what the server holds: `server_view` undone."""
        return model

    def wire_bytes(self, sent: Update) -> int:
        """Return the bytes of an update as it is sent: of float32, unless the defense is denser."""
        return sent.nbytes

    def describe(self) -> Mapping[str, Any]:
        """Return what the adversary may know: the parameters, never keys or draws."""
        return dataclasses.asdict(cast("DataclassInstance", self))
