"""Making a language victim's network from its spec."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from benchmark.errors import ProtocolError
from benchmark.seeds import global_stream
from benchmark.victims.language.pretrained import model_folder
from benchmark.victims.language.spec import TextSpec


def make_network(spec: TextSpec, draws: torch.Generator, mirror: Path | None) -> nn.Module:
    """Make a language victim's network; see `benchmark.victims.build`."""
    known = spec.kind
    _check(spec)
    folder = None
    if spec.weights == "pretrained" and known.trained is not None:
        folder = model_folder(*known.trained, mirror)
    with global_stream(draws):
        try:
            network = known.network(spec, folder)
        except ValueError as error:
            raise ProtocolError(f"{spec.architecture}: {error}") from error
    if spec.position == "sinusoidal":
        name = known.anatomy(network, masked=known.masked).position.removesuffix(".weight")
        _fix_positions(cast("nn.Embedding", network.get_submodule(name)), known.start)
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
    name, known = spec.architecture, spec.kind
    if known.masked and spec.mask_token is None:
        raise ProtocolError(f"{name} guesses masked tokens; its tokenizer has no mask token")
    if spec.weights == "random":
        return
    if known.trained is None:
        raise ProtocolError(f"{name} has no pretrained weights; wanted random")
    for size in ("width", "depth", "heads", "mlp", "position"):
        if (value := getattr(spec, size)) not in (None, "learned"):
            raise ProtocolError(f"{name}: pretrained weights take no {size}; got {value}")
