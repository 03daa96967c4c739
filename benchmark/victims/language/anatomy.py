"""Where a language victim keeps its parts, so that no attack knows a model by name.

`Part.of` reads them from an update or from `benchmark.victims.weights`, as views that can be
written through.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from benchmark.errors import NotApplicable
from benchmark.victims.language.victim import LanguageVictim
from benchmark.victims.parts import Linear, Part


@dataclass(frozen=True)
class LanguageBlock:
    """One transformer block; a norm is a prefix, and `.weight` and `.bias` follow."""

    attention_norm: str
    """Before the attention where `pre_norm`; else after the sum of it and its input."""
    mlp_norm: str
    """Before the MLP where `pre_norm`; else after the sum of it and its input."""
    query: Linear
    key: Linear
    value: Linear
    projection: Linear
    """The attention's output."""
    first: Linear
    """The MLP's, (mlp, width)."""
    second: Linear
    """The MLP's, (width, mlp)."""


@dataclass(frozen=True)
class LanguageAnatomy:
    """The parts of a language model; tables and norms as names, linear layers as parts."""

    vocabulary: int
    width: int
    heads: int
    pre_norm: bool
    """Whether the norms stand before attention and MLP, and not after each sum."""
    masked: bool
    """Whether it guesses masked tokens and sees the whole sequence."""
    token_embedding: str
    """The table (vocabulary, width)."""
    position: str
    """The table (positions, width), a parameter or a fixed buffer; added to the tokens."""
    position_trained: bool
    token_types: str | None
    """A table whose row 0 is added to every token."""
    embedding_norm: str | None
    """Prefix of a norm on that sum, before the first block."""
    blocks: tuple[LanguageBlock, ...]
    final_norm: str | None
    """Prefix of a norm after the last block."""
    head_transform: Linear | None
    """A layer between the last block and the decoder, with an activation behind it."""
    head_norm: str | None
    """Prefix of the norm behind that layer."""
    decoder: Linear
    """(vocabulary, width); the token embedding itself where `tied`."""
    tied: bool


def language_anatomy(model: nn.Module) -> LanguageAnatomy:
    """Return where a language victim keeps its parts.

    Raises:
        NotApplicable: the model is no language victim.
    """
    if not isinstance(model, LanguageVictim):
        raise NotApplicable(f"a {type(model).__name__} reads no text; wanted a language victim")
    parts = {"transformer3": _transformer3, "gpt2": _gpt2, "bert_base": _bert}
    return parts[model.spec.architecture](model.network, model)


def _linear(prefix: str) -> Linear:
    return Linear(Part(f"{prefix}.weight"), Part(f"{prefix}.bias"))


def _conv1d(prefix: str) -> Linear:
    """Return a layer that GPT-2 stores (in, out)."""
    return Linear(Part(f"{prefix}.weight", transposed=True), Part(f"{prefix}.bias"))


def _fused(layer: Linear, width: int) -> tuple[Linear, Linear, Linear]:
    """Return q, k and v of the layer that holds all three."""
    assert layer.bias is not None
    thirds = (slice(i * width, (i + 1) * width) for i in range(3))
    weight, bias = layer.weight, layer.bias.name
    q, k, v = (
        Linear(Part(weight.name, rows, weight.transposed), Part(bias, rows)) for rows in thirds
    )
    return q, k, v


def _transformer3(network: Any, model: LanguageVictim) -> LanguageAnatomy:  # noqa: ANN401
    width = network.token_embedding.embedding_dim
    blocks = []
    for i in range(len(network.blocks)):
        here = f"blocks.{i}"
        q, k, v = _fused(_linear(f"{here}.attn.qkv"), width)
        blocks.append(
            LanguageBlock(
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
    return LanguageAnatomy(
        vocabulary=network.token_embedding.num_embeddings,
        width=width,
        heads=network.blocks[0].attn.heads,
        pre_norm=False,
        masked=model.masked,
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


def _gpt2(network: Any, model: LanguageVictim) -> LanguageAnatomy:  # noqa: ANN401
    sizes = network.config
    blocks = []
    for i in range(sizes.n_layer):
        here = f"transformer.h.{i}"
        q, k, v = _fused(_conv1d(f"{here}.attn.c_attn"), sizes.n_embd)
        blocks.append(
            LanguageBlock(
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
    return LanguageAnatomy(
        vocabulary=sizes.vocab_size,
        width=sizes.n_embd,
        heads=sizes.n_head,
        pre_norm=True,
        masked=model.masked,
        token_embedding=embedding,
        position="transformer.wpe.weight",
        position_trained=isinstance(network.transformer.wpe.weight, nn.Parameter),
        token_types=None,
        embedding_norm=None,
        blocks=tuple(blocks),
        final_norm="transformer.ln_f",
        head_transform=None,
        head_norm=None,
        decoder=Linear(Part(embedding), None),
        tied=True,
    )


def _bert(network: Any, model: LanguageVictim) -> LanguageAnatomy:  # noqa: ANN401
    sizes, tables, head = network.config, "bert.embeddings", "cls.predictions"
    blocks = []
    for i in range(sizes.num_hidden_layers):
        here = f"bert.encoder.layer.{i}"
        q, k, v = (_linear(f"{here}.attention.self.{name}") for name in ("query", "key", "value"))
        blocks.append(
            LanguageBlock(
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
    return LanguageAnatomy(
        vocabulary=sizes.vocab_size,
        width=sizes.hidden_size,
        heads=sizes.num_attention_heads,
        pre_norm=False,
        masked=model.masked,
        token_embedding=embedding,
        position=f"{tables}.position_embeddings.weight",
        position_trained=isinstance(positions, nn.Parameter),
        token_types=f"{tables}.token_type_embeddings.weight",
        embedding_norm=f"{tables}.LayerNorm",
        blocks=tuple(blocks),
        final_norm=None,
        head_transform=_linear(f"{head}.transform.dense"),
        head_norm=f"{head}.transform.LayerNorm",
        decoder=Linear(Part(embedding), Part(f"{head}.bias")),
        tied=True,
    )
