"""Where a language victim keeps its parts, so that no attack knows a model by name.

`ParameterSlice.of` reads them from an update or from `benchmark.victims.weights`, as views that
can be written through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from benchmark.contract import Anatomy
from benchmark.victims.parameters import LinearLayer, ParameterSlice

Network = Any
"""A module whose attributes torch does not type."""


@dataclass(frozen=True)
class TextBlock:
    """One transformer block; a norm is a prefix, and `.weight` and `.bias` follow."""

    attention_norm: str
    """Before the attention where `pre_norm`; else after the sum of it and its input."""
    mlp_norm: str
    """Before the MLP where `pre_norm`; else after the sum of it and its input."""
    query: LinearLayer
    key: LinearLayer
    value: LinearLayer
    projection: LinearLayer
    """The attention's output."""
    first: LinearLayer
    """The MLP's, (mlp, width)."""
    second: LinearLayer
    """The MLP's, (width, mlp)."""


@dataclass(frozen=True, kw_only=True)
class TextAnatomy(Anatomy):
    """The parts of a language model; its positions are a table (positions, width)."""

    vocabulary: int
    pre_norm: bool
    """Whether the norms stand before attention and MLP, and not after each sum."""
    masked: bool
    """Whether it guesses masked tokens and sees the whole sequence."""
    token_embedding: str
    """The table (vocabulary, width)."""
    token_types: str | None
    """A table whose row 0 is added to every token."""
    embedding_norm: str | None
    """Prefix of a norm on that sum, before the first block."""
    blocks: tuple[TextBlock, ...]
    head_transform: LinearLayer | None
    """A layer between the last block and the decoder, with an activation behind it."""
    head_norm: str | None
    """Prefix of the norm behind that layer."""
    decoder: LinearLayer
    """(vocabulary, width); the token embedding itself where `tied`."""
    tied: bool


def _linear(prefix: str) -> LinearLayer:
    return LinearLayer(ParameterSlice(f"{prefix}.weight"), ParameterSlice(f"{prefix}.bias"))


def _conv1d(prefix: str) -> LinearLayer:
    """Return a layer that GPT-2 stores (in, out)."""
    return LinearLayer(
        ParameterSlice(f"{prefix}.weight", transposed=True), ParameterSlice(f"{prefix}.bias")
    )


def _fused(layer: LinearLayer, width: int) -> tuple[LinearLayer, LinearLayer, LinearLayer]:
    """Return q, k and v of the layer that holds all three."""
    assert layer.bias is not None
    weight, bias = layer.weight, layer.bias.name

    def part(rows: slice) -> LinearLayer:
        return LinearLayer(
            ParameterSlice(weight.name, rows, weight.transposed), ParameterSlice(bias, rows)
        )

    q, k, v = (part(slice(i * width, (i + 1) * width)) for i in range(3))
    return q, k, v


def transformer3(network: Network, *, masked: bool) -> TextAnatomy:
    """Return where it keeps its parts."""
    width = network.token_embedding.embedding_dim
    blocks = []
    for i in range(len(network.blocks)):
        here = f"blocks.{i}"
        q, k, v = _fused(_linear(f"{here}.attn.qkv"), width)
        blocks.append(
            TextBlock(
                attention_norm=f"{here}.norm1",
                mlp_norm=f"{here}.norm2",
                query=q,
                key=k,
                value=v,
                projection=_linear(f"{here}.attn.proj"),
                first=_linear(f"{here}.fc1"),
                second=_linear(f"{here}.fc2"),
            )
        )
    return TextAnatomy(
        vocabulary=network.token_embedding.num_embeddings,
        width=width,
        heads=network.blocks[0].attn.heads,
        pre_norm=False,
        masked=masked,
        token_embedding="token_embedding.weight",
        position="position_embedding.weight",
        position_trained=isinstance(network.position_embedding.weight, nn.Parameter),
        token_types=None,
        embedding_norm=None,
        blocks=tuple(blocks),
        final_norm=None,
        head_transform=None,
        head_norm=None,
        decoder=_linear("decoder"),
        tied=False,
    )


def gpt2(network: Network, *, masked: bool) -> TextAnatomy:
    """Return where it keeps its parts."""
    sizes = network.config
    blocks = []
    for i in range(sizes.n_layer):
        here = f"transformer.h.{i}"
        q, k, v = _fused(_conv1d(f"{here}.attn.c_attn"), sizes.n_embd)
        blocks.append(
            TextBlock(
                attention_norm=f"{here}.ln_1",
                mlp_norm=f"{here}.ln_2",
                query=q,
                key=k,
                value=v,
                projection=_conv1d(f"{here}.attn.c_proj"),
                first=_conv1d(f"{here}.mlp.c_fc"),
                second=_conv1d(f"{here}.mlp.c_proj"),
            )
        )
    embedding = "transformer.wte.weight"
    return TextAnatomy(
        vocabulary=sizes.vocab_size,
        width=sizes.n_embd,
        heads=sizes.n_head,
        pre_norm=True,
        masked=masked,
        token_embedding=embedding,
        position="transformer.wpe.weight",
        position_trained=isinstance(network.transformer.wpe.weight, nn.Parameter),
        token_types=None,
        embedding_norm=None,
        blocks=tuple(blocks),
        final_norm="transformer.ln_f",
        head_transform=None,
        head_norm=None,
        decoder=LinearLayer(ParameterSlice(embedding), None),
        tied=True,
    )


def bert(network: Network, *, masked: bool) -> TextAnatomy:
    """Return where it keeps its parts."""
    sizes, tables, head = network.config, "bert.embeddings", "cls.predictions"
    blocks = []
    for i in range(sizes.num_hidden_layers):
        here = f"bert.encoder.layer.{i}"
        q, k, v = (_linear(f"{here}.attention.self.{name}") for name in ("query", "key", "value"))
        blocks.append(
            TextBlock(
                attention_norm=f"{here}.attention.output.LayerNorm",
                mlp_norm=f"{here}.output.LayerNorm",
                query=q,
                key=k,
                value=v,
                projection=_linear(f"{here}.attention.output.dense"),
                first=_linear(f"{here}.intermediate.dense"),
                second=_linear(f"{here}.output.dense"),
            )
        )
    embedding = f"{tables}.word_embeddings.weight"
    positions = network.bert.embeddings.position_embeddings.weight
    return TextAnatomy(
        vocabulary=sizes.vocab_size,
        width=sizes.hidden_size,
        heads=sizes.num_attention_heads,
        pre_norm=False,
        masked=masked,
        token_embedding=embedding,
        position=f"{tables}.position_embeddings.weight",
        position_trained=isinstance(positions, nn.Parameter),
        token_types=f"{tables}.token_type_embeddings.weight",
        embedding_norm=f"{tables}.LayerNorm",
        blocks=tuple(blocks),
        final_norm=None,
        head_transform=_linear(f"{head}.transform.dense"),
        head_norm=f"{head}.transform.LayerNorm",
        decoder=LinearLayer(ParameterSlice(embedding), ParameterSlice(f"{head}.bias")),
        tied=True,
    )
