"""A client: private batch and victim in, update out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.contract import Batch, LocalTraining, Update, Victim
from benchmark.seeds import global_stream

Gradient = Callable[[Victim, Batch], Update]
"""The gradient of a batch's mean loss, or what a defense makes of it."""


@dataclass(frozen=True)
class Client:
    """How an update is made of a private batch.

    Attributes:
        users: whose equal parts of the batch stand one after the other; the server sees the mean
            of their updates.
        local: their training; None is one gradient of the whole batch (FedSGD), of which the mean
            over users is a part already.
        dropout: whether the victim's dropout is active. Batch norms read their running statistics
            either way.
    """

    users: int = 1
    local: LocalTraining | None = None
    dropout: bool = True

    def update(
        self, model: Victim, batch: Batch, gradient: Gradient, draws: torch.Generator
    ) -> Update:
        """Return the update.

        Args:
            model: what the server sent; it stays as it is.
            batch: of all users.
            gradient: makes one.
            draws: the order of the examples in local training.
        """
        if self.local is None:
            return gradient(model, batch)
        if self.users == 1:
            return fedavg(model, batch, self.local, gradient, draws)
        own = torch.arange(len(batch)).view(self.users, -1)
        found = [fedavg(model, batch.select(rows), self.local, gradient, draws) for rows in own]
        return Update({name: torch.stack([u[name] for u in found]).mean(0) for name in found[0]})


def fedsgd(
    model: Victim,
    batch: Batch,
    generator: torch.Generator | None = None,
    *,
    dropout: bool = True,
) -> Update:
    """Return one batch's gradient of the mean loss, by parameter name, float32.

    Args:
        model: the victim.
        batch: the private batch, of the victim's track.
        generator: draws what dropout leaves out; needed where the victim has any.
        dropout: whether it is active.
    """
    with _dropout(model, generator, active=dropout):
        loss = model.loss(batch)
    weights = model.weights()
    gradients = torch.autograd.grad(
        loss,
        list(weights.values()),
        allow_unused=True,  # a shared position of masked patches, of a batch that has none
        materialize_grads=True,
    )
    return Update(dict(zip(weights, gradients, strict=True)))


def fedavg(
    model: Victim, batch: Batch, local: LocalTraining, gradient: Gradient, draws: torch.Generator
) -> Update:
    """Return what one user's local training moved, in units of a gradient.

    That is the weights sent less the weights returned, over rate and steps, which the server chose:
    of one step on the whole batch its gradient, of more the mean of the gradients on the way. The
    difference of float32 weights is rounded to the weights' own last digit, as a client's is.

    McMahan et al. (AISTATS 2017).
    """
    moved = copy.deepcopy(model)
    weights = moved.weights()
    for rows in _parts(len(batch), local, draws):
        step = gradient(moved, batch if len(rows) == len(batch) else batch.select(rows))
        with torch.no_grad():
            for name, weight in weights.items():
                weight.sub_(step[name], alpha=local.rate)
    scale = local.rate * local.steps
    return Update(
        {
            name: (weight.detach() - weights[name].detach()).div_(scale)
            for name, weight in model.weights().items()
        }
    )


def _parts(examples: int, local: LocalTraining, draws: torch.Generator) -> Iterator[Tensor]:
    """Yield the rows of each local step: every epoch goes through all, in another order."""
    left = torch.empty(0, dtype=torch.int64)
    for _ in range(local.steps):
        if not len(left):
            left = torch.randperm(examples, generator=draws)
        rows, left = left[: local.batch_size], left[local.batch_size :]
        yield rows


@contextmanager
def _dropout(model: Victim, generator: torch.Generator | None, *, active: bool) -> Iterator[None]:
    """Train with dropout where the victim has any; its masks come from torch's global stream."""
    if not (model.dropout and active):
        yield
        return
    assert generator is not None, "dropout wants a generator"
    with global_stream(generator):
        model.train()
        try:
            yield
        finally:
            model.eval()
