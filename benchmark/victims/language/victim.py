"""A victim of text: a network that reads tokens, its loss, and the spec that makes it again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmark.contract import Batch, TextBatch, Victim
from benchmark.errors import NotApplicable, ProtocolError
from benchmark.victims.language.anatomy import TextAnatomy
from benchmark.victims.language.network import make_network
from benchmark.victims.language.spec import TextSpec


class TextVictim(Victim):
    """A victim that reads tokens int64, (batch, length).

    GPT-2's and BERT's updates carry the names of `transformers`.
    """

    track: ClassVar = "text"
    network: Any  # embed, states and logits are its three steps
    spec: TextSpec

    def __init__(self, network: nn.Module, spec: TextSpec) -> None:
        super().__init__()
        self.network, self.spec, self.dropout = network, spec, spec.dropout

    @classmethod
    def make(
        cls, spec: TextSpec, generator: torch.Generator, mirror: Path | None = None
    ) -> TextVictim:
        """Make a victim; see `build`."""
        return cls(make_network(spec, generator, mirror), spec).eval()

    @classmethod
    def of(cls, model: nn.Module) -> TextVictim:
        """Return a model as what it is; NotApplicable where it reads no text."""
        if not isinstance(model, cls):
            raise NotApplicable("a Victim reads no text; wanted a language victim")
        return model

    @property
    def anatomy(self) -> TextAnatomy:
        """Where it keeps its parts."""
        return self.spec.kind.anatomy(self.network, masked=self.masked)

    @property
    def masked(self) -> bool:
        """Whether it guesses masked tokens, rather than every next one."""
        return self.spec.kind.masked

    def forward(self, tokens: Tensor) -> Tensor:
        return self.from_embeddings(self.embed(tokens))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the tokens' embeddings, without positions, (batch, length, width)."""
        return self.network.embed(tokens)

    def from_embeddings(self, embeddings: Tensor) -> Tensor:
        """Return logits, (batch, length, vocabulary), from what `embed` returns."""
        return self.network.logits(self._states(embeddings))

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross entropy in nats, a mean over all predicted tokens of all sequences.

        Logits, the largest tensor by far, are made for the predicted tokens alone.
        """
        assert isinstance(batch, TextBatch)
        tokens = batch.tokens.to(self.device)
        if self.masked:
            assert batch.masked is not None
            assert self.spec.mask_token is not None
            masked = batch.masked.to(self.device)
            read = tokens.masked_fill(masked, self.spec.mask_token)
            states, wanted = self._states(self.embed(read))[masked], tokens[masked]
        else:
            states = self._states(self.embed(tokens))[:, :-1].flatten(0, 1)
            wanted = tokens[:, 1:].flatten()
        return functional.cross_entropy(self.network.logits(states), wanted)

    def _states(self, embeddings: Tensor) -> Tensor:
        if (length := embeddings.shape[1]) > self.spec.length:
            raise ProtocolError(
                f"{self.spec.architecture} reads {self.spec.length} tokens; got {length}"
            )
        return self.network.states(embeddings)
