"""Making a language victim's network from its spec."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from benchmark.errors import ProtocolError
from benchmark.seeds import global_stream
from benchmark.victims.language.anatomy import anatomy
from benchmark.victims.language.spec import TextSpec
from benchmark.victims.language.transformer3 import START, Transformer3


def make_network(
    spec: TextSpec, generator: torch.Generator, mirror: Path | None = None
) -> nn.Module:
    """Make a language victim's network; see `benchmark.victims.build`."""
    _check(spec)
    with global_stream(generator):
        try:
            network, start = _network(spec, mirror)
        except ValueError as error:
            raise ProtocolError(f"{spec.architecture}: {error}") from error
    if spec.position == "sinusoidal":
        name = anatomy(network, spec).position.removesuffix(".weight")
        _fix_positions(cast("nn.Embedding", network.get_submodule(name)), start)
    return network


def sinusoids(positions: int, width: int) -> Tensor:
    """Return (positions, width): sines and cosines in turn, as Vaswani et al. (2017) have them."""
    wave = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * 10_000 ** (-wave / width)
    return torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width].float()


def _fix_positions(table: nn.Embedding, size: float) -> None:
    """Replace a learned table by a fixed buffer of the same name, the waves' height `size`."""
    fixed = size * sinusoids(table.num_embeddings, table.embedding_dim)
    del table.weight
    table.register_buffer("weight", fixed)


def _check(spec: TextSpec) -> None:
    if spec.architecture == "bert_base" and spec.mask_token is None:
        raise ProtocolError("bert_base guesses masked tokens; its tokenizer has no mask token")
    if spec.weights == "random":
        return
    if spec.architecture == "transformer3":
        raise ProtocolError("transformer3 has no pretrained weights; wanted random")
    for name in ("width", "depth", "heads", "mlp", "position"):
        if (value := getattr(spec, name)) not in (None, "learned"):
            raise ProtocolError(
                f"{spec.architecture}: pretrained weights take no {name}; got {value}"
            )


def _network(spec: TextSpec, mirror: Path | None) -> tuple[nn.Module, float]:
    """Return the network and the size at which its embeddings start.

    Fixed positions are given that size too: waves of height 1 would drown the tokens.
    """
    if spec.architecture == "transformer3":
        return Transformer3(spec), START
    from benchmark.victims.language import transformers_models as models

    make = models.gpt2 if spec.architecture == "gpt2" else models.bert_base
    return make(spec, mirror), models.START
