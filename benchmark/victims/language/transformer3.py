"""The 3-layer transformer that serves as a template of federated learning.

Decepticons (Fowl et al., ICLR 2023, section 4) takes it from Wang et al., "A Field Guide to
Federated Optimization" (2021): width 96, 8 heads, MLP of 1536 with ReLU, norms after the sums, an
untied decoder with bias, a causal mask; 10,751,281 parameters with 50,257 tokens and 512 learned
positions.

The start: embedding and decoder uniform in [-0.1, 0.1] and a decoder bias of zero, as the template
draws them, and learned positions alike; q, k, v Xavier uniform and the attention's biases zero, as
in torch's MultiheadAttention; norms and MLPs as torch starts them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from benchmark.victims.language.spec import TextSpec

WIDTH, DEPTH, HEADS, MLP = 96, 3, 8, 1536
START = 0.1
"""Largest entry of embedding, positions and decoder at the start."""


class CausalAttention(nn.Module):
    """Multi-head self-attention, (batch, token, width) to the same; unfused.

    The fused kernels cannot be differentiated twice.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.drop = nn.Dropout(dropout)
        nn.init.xavier_uniform_(self.qkv.weight)
        nn.init.zeros_(self.qkv.bias)
        nn.init.zeros_(self.proj.bias)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        qkv = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (batch, head, token, width / heads)
        scores = q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5
        future = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
        weights = self.drop(scores.masked_fill(future, -torch.inf).softmax(dim=-1))
        return self.proj((weights @ v).transpose(1, 2).reshape(batch, tokens, width))


class PostNormBlock(nn.Module):
    """Attention and MLP, each added to its input and then normalised."""

    def __init__(
        self, width: int, heads: int, mlp: int, dropout: float, act: Callable[[Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.attn, self.norm1 = CausalAttention(width, heads, dropout), nn.LayerNorm(width)
        self.fc1, self.fc2 = nn.Linear(width, mlp), nn.Linear(mlp, width)
        self.norm2, self.drop, self.act = nn.LayerNorm(width), nn.Dropout(dropout), act

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.drop(self.attn(x)))
        hidden = self.drop(self.act(self.fc1(x)))
        return self.norm2(x + self.drop(self.fc2(hidden)))


class Transformer3(nn.Module):
    """Causal language model, drawn from torch's global stream.

    Raises:
        ValueError: heads that cannot share the width.
    """

    def __init__(self, spec: TextSpec) -> None:
        super().__init__()
        width, heads, mlp = spec.width or WIDTH, spec.heads or HEADS, spec.mlp or MLP
        if width % heads:
            raise ValueError(f"{heads} heads cannot share a width of {width}")
        act = functional.gelu if spec.activation == "gelu" else functional.relu
        self.token_embedding = nn.Embedding(spec.vocabulary, width)
        self.position_embedding = nn.Embedding(spec.length, width)
        self.drop = nn.Dropout(spec.dropout)
        sizes, depth = (width, heads, mlp, spec.dropout, act), spec.depth or DEPTH
        self.blocks = nn.ModuleList([PostNormBlock(*sizes) for _ in range(depth)])
        self.decoder = nn.Linear(width, spec.vocabulary)
        for layer in (self.token_embedding, self.position_embedding, self.decoder):
            nn.init.uniform_(layer.weight, -START, START)
        nn.init.zeros_(self.decoder.bias)

    def embed(self, tokens: Tensor) -> Tensor:
        """Return the tokens' embeddings, without positions, (batch, length, width)."""
        return self.token_embedding(tokens)

    def states(self, embeddings: Tensor) -> Tensor:
        """Return what the decoder reads, (batch, length, width), from the tokens' embeddings."""
        x = self.drop(embeddings + self.position_embedding.weight[: embeddings.shape[1]])
        for block in self.blocks:
            x = block(x)
        return x

    def logits(self, states: Tensor) -> Tensor:
        """Return (..., vocabulary) from (..., width)."""
        return self.decoder(states)
