"""A client: private batch and victim in, update out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from benchmark.contract import Batch, TextBatch, Update
from benchmark.victims import LanguageVictim, Victim


def fedsgd(
    model: nn.Module, batch: Batch | TextBatch, generator: torch.Generator | None = None
) -> Update:
    """Return one batch's gradient of the mean loss, by parameter name, float32.

    Args:
        model: a Victim of a Batch, a LanguageVictim of a TextBatch.
        batch: the private batch.
        generator: draws what dropout leaves out; needed where the victim has any.
    """
    if isinstance(model, LanguageVictim):
        assert isinstance(batch, TextBatch)
        with _dropout(model, generator):
            loss = model.loss(batch)
    else:
        assert isinstance(model, Victim)
        assert isinstance(batch, Batch)
        loss = model.loss(batch)
    weights = model.weights()
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return Update(dict(zip(weights, gradients, strict=True)))


@contextmanager
def _dropout(model: LanguageVictim, generator: torch.Generator | None) -> Iterator[None]:
    """Train with dropout where the victim has any; its masks come from torch's global stream."""
    if not model.spec.dropout:
        yield
        return
    assert generator is not None, "dropout wants a generator"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        model.train()
        try:
            yield
        finally:
            model.eval()
