"""The first block of a language model, taken apart: what tokens cost alone is computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmark.api import LinearLayer, TextVictim, layer_inputs, weights

_ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    functional.relu,
    functional.gelu,
    lambda x: functional.gelu(x, approximate="tanh"),
)


class FirstBlock:
    """Maps tokens at positions, and what they attend to, to the second attention's inputs.

    Queries, keys and values of a token at a position depend on nothing else, so they are made once
    for all sequences that hold it; only the MLP is run for each pair of token and context.
    """

    def __init__(self, model: nn.Module) -> None:
        model = TextVictim.of(model)
        self._parts, self._known = model.anatomy, weights(model)
        self._model, self._block = model, self._parts.blocks[0]
        self._activation = self._find_activation()

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return what enters the block, (..., width), of tokens at positions, each (...)."""
        parts, known = self._parts, self._known
        tokens, positions = tokens.to(self._device), positions.to(self._device)
        x = self._model.embed(tokens) + known[parts.position][positions]
        if parts.token_types is not None:
            x = x + known[parts.token_types][0]
        return x if parts.embedding_norm is None else self._norm(parts.embedding_norm, x)

    def attended(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, scaled, keys and values, each (..., heads, width / heads)."""
        read = self._norm(self._block.attention_norm, x) if self._parts.pre_norm else x
        linears = (self._block.query, self._block.key, self._block.value)
        shape = (*x.shape[:-1], self._parts.heads, x.shape[-1] // self._parts.heads)
        q, k, v = (self._apply(linear, read).reshape(shape) for linear in linears)
        return q * q.shape[-1] ** -0.5, k, v

    def leave(self, x: Tensor, context: Tensor) -> Tensor:
        """Return the second attention's inputs (..., width).

        Args:
            x: what entered, (..., width).
            context: what the heads attended to, (..., heads, width / heads).
        """
        block, parts = self._block, self._parts
        x = x + self._apply(block.projection, context.flatten(-2))
        if not parts.pre_norm:
            x = self._norm(block.attention_norm, x)
            return self._norm(block.mlp_norm, x + self._mlp(x))
        x = x + self._mlp(self._norm(block.mlp_norm, x))
        return self._norm(parts.blocks[1].attention_norm, x)

    def _mlp(self, x: Tensor) -> Tensor:
        return self._apply(self._block.second, self._activation(self._apply(self._block.first, x)))

    def _apply(self, linear: LinearLayer, x: Tensor) -> Tensor:
        bias = None if linear.bias is None else linear.bias.of(self._known)
        return functional.linear(x, linear.weight.of(self._known), bias)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        norm: Any = self._model.network.get_submodule(name)
        return norm(x)

    def _find_activation(self) -> Callable[[Tensor], Tensor]:
        """Return the MLP's activation, told by what it makes of one sequence."""
        names = (linear.weight.name for linear in (self._block.first, self._block.second))
        first, second = (self._model.network.get_submodule(n.rpartition(".")[0]) for n in names)
        with torch.no_grad(), layer_inputs(first, second, stop=True) as read:
            self._model(torch.zeros(1, 1, dtype=torch.int64, device=self._device))
        with torch.no_grad():
            before, after = first(read[0]), read[1]
        return min(_ACTIVATIONS, key=lambda act: float((act(before) - after).abs().max()))

    @property
    def _device(self) -> torch.device:
        return self._known[self._parts.token_embedding].device
