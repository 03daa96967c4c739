"""What malicious servers that imprint a language model have in common (Fowl et al., ICLR 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import NonNegativeFloat
from torch import Tensor

from benchmark.contract import Grant, Knowledge, MaliciousAttack, Victim
from benchmark.victims import TextAnatomy, TextVictim, layer_inputs, weights


@dataclass(frozen=True)
class Imprinting(MaliciousAttack):
    """Parameters that sort what is read into bins by one measurement."""

    measure: Literal["public_text", "random_tokens"] = "public_text"
    """What shows how the measurement is spread, and so places the edges of the bins."""
    noise: NonNegativeFloat = 0.0
    """On each row of the measurement, in sizes of its entries, against inspection of ranks."""

    @property
    def needs(self) -> frozenset[Grant]:
        """Batch size and length, and public text where that is measured."""
        sample = {Grant.PUBLIC_TEXT} if self.measure == "public_text" else set()
        return frozenset({Grant.BATCH_SIZE, Grant.LENGTH} | sample)

    def sample(
        self, model: Victim, known: Knowledge, sequences: int, generator: torch.Generator
    ) -> Tensor:
        """Return what is measured: (sequences, length) int64, of public text fewer if it is short.

        Args:
            model: a language victim.
            known: to the server.
            sequences: how many.
            generator: draws tokens at random.
        """
        if self.measure == "public_text":
            text: Tensor = known.require(Grant.PUBLIC_TEXT)[:sequences]
            return text
        shape = (sequences, int(known.require(Grant.LENGTH)))
        return torch.randint(TextVictim.of(model).anatomy.vocabulary, shape, generator=generator)


def measuring(parts: TextAnatomy) -> int:
    """Return how many blocks hold bins; a masked model's last one hears of masked tokens alone."""
    return len(parts.blocks) - int(parts.masked)


def silence(parts: TextAnatomy, known: Mapping[str, Tensor]) -> None:
    """Make every norm plain and every attention's and MLP's output zero, and token types too."""
    norms = [parts.embedding_norm, parts.final_norm, parts.head_norm]
    for block in parts.blocks:
        norms += [block.attention_norm, block.mlp_norm]
        for linear in (block.query, block.key, block.value, block.projection, block.second):
            linear.weight.of(known).zero_()
            if linear.bias is not None:
                linear.bias.of(known).zero_()
    for norm in filter(None, norms):
        known[f"{norm}.weight"].fill_(1)
        known[f"{norm}.bias"].zero_()
    if parts.token_types is not None:
        known[parts.token_types].zero_()


def is_smooth(model: Victim) -> bool:
    """Tell whether the activation lets through what is below zero, as GELU does.

    The first block's first layer is written over.
    """
    block, known = TextVictim.of(model).anatomy.blocks[0], weights(model)
    assert block.first.bias is not None
    block.first.weight.of(known).zero_()
    block.first.bias.of(known).fill_(-1)
    token = torch.zeros(1, 1, dtype=torch.int64)
    return bool(given_to(model, block.second.weight.name, token).any())


def given_to(model: Victim, weight: str, tokens: Tensor) -> Tensor:
    """Return what the layer of a weight is given when the victim reads tokens, without dropout.

    Args:
        model: a language victim.
        weight: the parameter's name.
        tokens: (batch, length) int64.

    Returns:
        (batch, length, width of the layer's input).
    """
    model = TextVictim.of(model)
    layer, training = model.network.get_submodule(weight.rpartition(".")[0]), model.training
    try:
        with torch.no_grad(), layer_inputs(layer, stop=True) as read:
            model.eval()(tokens.to(model.device))
    finally:
        model.train(training)
    return read[0]
