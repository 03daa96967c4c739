"""Span tokens beneath noise whose strength the defense describes.

The first attention's gradient is a sum over places of a column times the place's input, plus noise
of one size on every entry. The rank of the sum is the number of places, whatever the noise, so the
span is as large as it must be: directions that noise hides are uncertain, but what lies beyond all
of them is surely not of the sequence. What stands nearest to that span begins the search for the
sequence that is likeliest (`likelihood.py`), all columns being unknown.

A sequence that leaves less than the noise is read into the noise, and the nearest tokens stand. A
token is certain where the sequence leaves what noise would and no other token comes near.

Source: derived for this benchmark, after DAGER (Petrov et al., NeurIPS 2024), which cuts the span
and knows no noise.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.api import NotApplicable, Observation
from benchmark.toolbox.closedform.solve import exact, leading_rows
from benchmark.toolbox.text.spans import (
    TextEntrance,
    attention_gradient,
    predicted_places,
    reads_whole,
)
from submissions.attacks.decepticon_denoised.noise import noise_of, noise_share
from submissions.attacks.span_tokens.attack import SpanTokens
from submissions.attacks.span_tokens.search import Found
from submissions.attacks.span_tokens_denoised.likelihood import Likelihood

_CANDIDATES = 64  # of a place


@dataclass(frozen=True)
class SpanTokensDenoised(SpanTokens):
    """The whole span of one sequence that is predicted token by token, and its likeliest tokens."""

    def applies(self, seen: Observation) -> None:
        super().applies(seen)
        noise_share(seen.defense, seen.batch_size, 1)
        if seen.batch_size > 1:
            raise NotApplicable("the likelihood is of a lone sequence")
        if reads_whole(seen.model):
            raise NotApplicable("it reads sequences whose every next token is predicted")

    def span(self, seen: Observation, block: int) -> Tensor:
        gradient = attention_gradient(seen.update, seen.model, block)
        rank = predicted_places(seen.model, seen.batch_size, seen.length)
        return leading_rows(gradient, rank, seen.generator)[0]

    def lone(self, seen: Observation, rounds: int, tokens: Tensor, possible: Tensor) -> Found:
        noise, tokens = _noise(seen, rounds), tokens[:, :_CANDIDATES]
        nearest = Found(tokens[:, :1].T, torch.zeros_like(possible[:, :1].T))
        if noise == 0:  # not even noise was sent
            return nearest
        gradient = exact(attention_gradient(seen.update, seen.model, 0)) / noise
        inputs = TextEntrance.of(seen.model, len(tokens)).inputs(tokens)
        found = Likelihood(gradient, inputs, seen.generator)
        found.climb()
        if found.fits_noise:
            return nearest
        return Found(tokens.gather(1, found.choice[:, None]).T, found.certain()[None])


def _noise(seen: Observation, rounds: int) -> float:
    """Return the noise's standard deviation on an entry of the mean of so many updates."""
    entries = sum(each.numel() for each in seen.update.values())
    share = noise_share(seen.defense, seen.batch_size, entries) / rounds**0.5
    return noise_of(share, seen.update.norm(), entries)
