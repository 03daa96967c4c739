"""A client: private batch and victim in, update out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from benchmark.contract import Batch, Update, Victim
from benchmark.seeds import global_stream


def fedsgd(model: Victim, batch: Batch, generator: torch.Generator | None = None) -> Update:
    """Return one batch's gradient of the mean loss, by parameter name, float32.

    Args:
        model: the victim.
        batch: the private batch, of the victim's track.
        generator: draws what dropout leaves out; needed where the victim has any.
    """
    with _dropout(model, generator):
        loss = model.loss(batch)
    weights = model.weights()
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return Update(dict(zip(weights, gradients, strict=True)))


@contextmanager
def _dropout(model: Victim, generator: torch.Generator | None) -> Iterator[None]:
    """Train with dropout where the victim has any; its masks come from torch's global stream."""
    if not model.dropout:
        yield
        return
    assert generator is not None, "dropout wants a generator"
    with global_stream(generator):
        model.train()
        try:
            yield
        finally:
            model.eval()
