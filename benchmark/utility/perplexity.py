"""Perplexity of text: exp of the mean cross entropy, in nats, of the tokens to be guessed."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from benchmark.contract import TextBatch
from benchmark.victims import TextVictim

_AT_ONCE = 64  # sequences
_LARGEST = 700.0  # nats; exp of more is beyond float64


def perplexity(victim: TextVictim, data: TextBatch) -> float:
    """Return a victim's perplexity, infinite where its logits are not finite."""
    nats, guessed = 0.0, 0
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(data)), _AT_ONCE):
            part = data.select(rows)
            count = len(_guessed(part))
            nats, guessed = nats + float(victim.loss(part)) * count, guessed + count
    mean = nats / guessed
    return math.exp(mean) if mean < _LARGEST else math.inf  # a NaN is not less


def frequencies_perplexity(data: TextBatch) -> float:
    """Return the perplexity of the tokens' own frequencies: no one guess for all has a lower."""
    shares = _guessed(data).bincount().double() / len(_guessed(data))
    return math.exp(float(torch.special.entr(shares).sum()))


def _guessed(data: TextBatch) -> Tensor:
    """Return the tokens to be guessed, (any,): hidden ones, or every one that has one before it."""
    return data.tokens[:, 1:].flatten() if data.masked is None else data.tokens[data.masked]
