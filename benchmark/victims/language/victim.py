"""A language victim: a network that reads tokens, its loss, and the spec that makes it again."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from benchmark.contract import TextBatch
from benchmark.errors import ProtocolError
from benchmark.victims.language.spec import LanguageSpec


class LanguageVictim(nn.Module):
    """The model that a client trains, on tokens int64 (batch, length).

    Parameters are named as in the network: GPT-2's and BERT's updates carry the names of
    `transformers`.
    """

    def __init__(self, network: nn.Module, spec: LanguageSpec) -> None:
        super().__init__()
        self.network: Any = network  # embed, states and logits are its three steps
        self.spec = spec

    @property
    def masked(self) -> bool:
        """Whether it guesses masked tokens, rather than every next one."""
        return self.spec.architecture == "bert_base"

    def forward(self, tokens: Tensor) -> Tensor:
        return self.from_embeddings(self.embed(tokens))

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the tokens' embeddings, without positions, (batch, length, width)."""
        return self.network.embed(tokens)

    def from_embeddings(self, embeddings: Tensor) -> Tensor:
        """Return logits, (batch, length, vocabulary), from what `embed` returns."""
        return self.network.logits(self._states(embeddings))

    def loss(self, batch: TextBatch) -> Tensor:
        """Return the cross entropy in nats, a mean over all predicted tokens of all sequences.

        Logits, the largest tensor by far, are made for the predicted tokens alone.
        """
        device = next(self.parameters()).device
        tokens = batch.tokens.to(device)
        if self.masked:
            assert batch.masked is not None
            assert self.spec.mask_token is not None
            masked = batch.masked.to(device)
            read = tokens.masked_fill(masked, self.spec.mask_token)
            states, wanted = self._states(self.embed(read))[masked], tokens[masked]
        else:
            states = self._states(self.embed(tokens))[:, :-1].flatten(0, 1)
            wanted = tokens[:, 1:].flatten()
        return functional.cross_entropy(self.network.logits(states), wanted)

    def weights(self) -> dict[str, Tensor]:
        """Return every trained parameter by name, a tied one once: an update's entries."""
        return dict(self.network.named_parameters())

    def _states(self, embeddings: Tensor) -> Tensor:
        if (length := embeddings.shape[1]) > self.spec.length:
            raise ProtocolError(
                f"{self.spec.architecture} reads {self.spec.length} tokens; got {length}"
            )
        return self.network.states(embeddings)
