"""The text track: sequences of tokens, read by a TextVictim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmark.contract import Grant, Reconstruction, TextBatch, text_fault
from benchmark.data import Tokenizer, TokenSet, load_tokenizer, load_tokens
from benchmark.federation import Round, canary_text, draw_text
from benchmark.metrics import TextScorer, excerpt
from benchmark.protocol import TextProtocol
from benchmark.records import Excerpt
from benchmark.seeds import PUBLIC, Key, generator
from benchmark.tracks.setting import Setting, client
from benchmark.victims import TextSpec, build

_PUBLIC_SEQUENCES = 512  # of the public split, at most: what a server would gather in minutes


@dataclass(frozen=True)
class TextSetting(Setting):
    """What all cells of a protocol of text share; see `Setting`.

    Attributes:
        public_text: (sequences, length) int64, of the public split.
    """

    protocol: TextProtocol
    tokenizer: Tokenizer
    data: TokenSet
    public_text: Tensor
    scorer: TextScorer
    mirror: Path | None
    device: torch.device

    @classmethod
    def load(cls, protocol: TextProtocol, mirror: Path | None, device: torch.device) -> TextSetting:
        """Load a protocol's tokenizer and text.

        Raises:
            DataUnavailable: one of them cannot be had here.
        """
        chosen = protocol.data
        tokenizer = load_tokenizer(chosen.tokenizer, mirror)
        skip = chosen.skip_lines
        data = load_tokens(chosen.entry, chosen.split, tokenizer, mirror, skip_lines=skip)
        public = load_tokens(chosen.entry, "train", tokenizer, mirror, skip_lines=skip)
        scorer = TextScorer(protocol.metrics, tokenizer.decode)
        text = _sequences(public, chosen.length)
        return cls(protocol, tokenizer, data, text, scorer, mirror, device)

    def round(self, seed: int, key: Key = PUBLIC) -> Round:
        """Make the undefended round of one seed."""
        protocol = self.protocol
        base = key.base(seed) if protocol.canaries else seed
        spec = TextSpec(
            **protocol.victim.model_dump(),
            vocabulary=self.tokenizer.vocabulary,
            length=max(protocol.data.length, protocol.victim.kind.positions),
            mask_token=self.tokenizer.mask_token,
        )
        victim = build(spec, generator(base, protocol.name, "victim"), self.mirror)
        return Round(
            protocol.name,
            base,
            victim.to(self.device),
            self._truths(seed, key, masked=victim.masked),
            client(protocol.federation),
            protocol.federation.rounds,
        )

    def _truths(self, seed: int, key: Key, *, masked: bool) -> list[TextBatch]:
        protocol, federation = self.protocol, self.protocol.federation
        draw = partial(canary_text, key=key) if protocol.canaries else draw_text
        return draw(
            protocol.name,
            self.data,
            seed,
            trials=protocol.trials,
            users=federation.users,
            batch_size=federation.batch_size,
            length=protocol.data.length,
            masked=masked,
        )

    def facts(self, truth: TextBatch | None) -> dict[Grant, Any]:
        """Return what a threat model may grant of a trial."""
        return {
            Grant.BATCH_SIZE: self._shape[0],
            Grant.LENGTH: self._shape[1],
            Grant.PUBLIC_TEXT: self.public_text,
        }

    def answer(self, truth: TextBatch) -> Tensor:
        """Return the tokens."""
        return truth.tokens

    def prior(self, truth: TextBatch) -> Reconstruction:
        """Return the most frequent token of the public text at every place."""
        common = torch.bincount(self.public_text.flatten()).argmax()
        return Reconstruction(tokens=torch.full_like(truth.tokens, int(common)))

    def fault(self, answer: Reconstruction) -> str | None:
        """Return in one line why an answer is a failed trial, or None."""
        return text_fault(
            answer,
            shape=self._shape,
            vocabulary=self.tokenizer.vocabulary,
            budget=self.protocol.budget.budget(),
        )

    def score(self, truth: TextBatch, answer: Reconstruction) -> dict[str, float | None]:
        """Return the protocol's metrics."""
        assert answer.tokens is not None
        return self.scorer.score(truth.tokens, answer.tokens, answer.certain)

    def excerpt(self, truth: TextBatch, answer: Reconstruction) -> Excerpt | None:
        """Return a sequence beside its reconstruction."""
        assert answer.tokens is not None
        return excerpt(truth.tokens, answer.tokens, answer.certain, self.tokenizer.pieces)

    def about_data(self) -> Mapping[str, str | int]:
        """Return who the users are, how many have enough text, and how many were skipped."""
        wanted = self.protocol.federation.batch_size * self.protocol.data.length
        able, skipped = self.data.with_at_least(wanted)
        return {"users_are": self.data.users_are, "users": len(able), "users_skipped": skipped}

    @property
    def _shape(self) -> tuple[int, int]:
        return self.protocol.federation.examples, self.protocol.data.length


def _sequences(public: TokenSet, length: int) -> Tensor:
    """Return the beginnings of users' text in turn, as many sequences as there are or serve."""
    whole = [
        text[: len(text) // length * length].view(-1, length) for text in public.users.values()
    ]
    return torch.cat(whole)[:_PUBLIC_SEQUENCES]
