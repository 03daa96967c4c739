"""Span tokens: exact text from honest gradients, without a search in the tokens' values.

Every input of an attention that sends gradient lies in the row space of the gradients of its
query, key and value weights. The first attention's span tells which tokens stand at each position,
the second's which of them make a sequence. Tokens that are labels alone (the last of a causal
sequence, the masked ones) are read off the decoder's gradient.

Source: derived for this benchmark; published as DAGER (Petrov et al., NeurIPS 2024). Differences:
labels alone are read too, and encoders are searched by descent, not exhaustively.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn.functional import pad

from benchmark.api import Attack, Grant, Observation, Reconstruction
from benchmark.toolbox.text.sequences import check_sequences, sequences_of_words
from benchmark.toolbox.text.spans import (
    CLEAR,
    attention_span,
    check_spans,
    label_places,
    label_scores,
    predicted_places,
    reads_whole,
    token_candidates,
)
from submissions.attacks.span_tokens.block import FirstBlock
from submissions.attacks.span_tokens.search import Found, Settler, grow

_SPARE = 2  # a position has no more true candidates than the span's rank, so the last is wrong
_SURE = 0.1  # how far from 1 a label's score may lie


@dataclass(frozen=True)
class SpanTokens(Attack):
    """Two spans, a prefix at a time; a batch of one sequence takes the first span alone.

    With `grouping="projectors"` the first attention alone tells sequences of other words apart.
    """

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.LENGTH})

    grouping: Literal["second_span", "projectors"] = "second_span"

    def applies(self, seen: Observation) -> None:
        alone = seen.batch_size == 1 or self.grouping == "projectors"
        check_spans(seen.update, seen.model, seen.batch_size, seen.length, 1 if alone else 2)
        if seen.batch_size > 1 and self.grouping == "projectors":
            check_sequences(seen.update, seen.model, seen.length)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        rounds, seen = 1 + len(seen.later), seen.averaged()
        found = self._read(seen, rounds)
        labels_alone = label_places(seen.model, found.tokens)
        scores = label_scores(seen.update, seen.model, found.tokens, labels_alone)
        best, second = scores.topk(2, dim=0).values
        found.tokens[labels_alone] = scores.argmax(0)
        found.certain[labels_alone] = ((best - 1).abs() < _SURE) & (second < 2 * _SURE)
        return Reconstruction(tokens=found.tokens, certain=found.certain)

    def span(self, seen: Observation, block: int) -> Tensor:
        """Return a basis (width, r) of what an attention reads."""
        rank = predicted_places(seen.model, seen.batch_size, seen.length)
        return attention_span(seen.update, seen.model, block, rank, seen.generator)

    def lone(self, seen: Observation, rounds: int, tokens: Tensor, possible: Tensor) -> Found:
        """Return a batch of one sequence.

        Args:
            seen: of the mean of all rounds' updates.
            rounds: how many they were.
            tokens: (places, k), the candidates of each place, nearest first.
            possible: (places, k), which of them are beyond doubt.
        """
        return Found(tokens[:, :1].T, possible[:, :1].T)

    def _read(self, seen: Observation, rounds: int) -> Found:
        """Return what the victim read; a causal one's last tokens are left at 0."""
        model, batch = seen.model, seen.batch_size
        rank = predicted_places(model, batch, seen.length)
        first = self.span(seen, 0)
        keep = max(first.shape[1], batch) + _SPARE
        tokens, off = token_candidates(model, first, rank // batch, keep)
        possible = off < CLEAR * off[:, -1:]
        if batch == 1:
            found = self.lone(seen, rounds, tokens, possible)
        else:
            read = self._by_projectors if self.grouping == "projectors" else self._sequences
            found = read(seen, tokens, possible)
        missing = (0, seen.length - found.tokens.shape[1])
        return Found(pad(found.tokens, missing), pad(found.certain, missing))

    def _sequences(self, seen: Observation, tokens: Tensor, possible: Tensor) -> Found:
        """Return sequences made of each position's candidates, nearest first."""
        batch, span = seen.batch_size, self.span(seen, 1)
        possible[:, : batch + 1] = True  # under noise none may be clear
        with torch.no_grad():
            block = FirstBlock(seen.model)
            if reads_whole(seen.model):
                return Settler(block, span, tokens, possible, batch).settle()
            choices = [row[good] for row, good in zip(tokens, possible, strict=True)]
            return grow(block, span, choices, batch)

    def _by_projectors(self, seen: Observation, tokens: Tensor, possible: Tensor) -> Found:
        """Return the sequences that the first attention tells; else each position's nearest."""
        batch, words = seen.batch_size, torch.unique(tokens[possible])
        found = sequences_of_words(seen.update, seen.model, words, batch, len(tokens))
        if found is None:
            nearest = tokens[:, :batch].T
            return Found(nearest, torch.zeros_like(nearest, dtype=torch.bool))
        return Found(found.tokens, found.certain)
