"""The gradients of a stack of trials, kept as the factors that make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Product:
    """The gradient of a matrix as a product: `outputs.T @ inputs`, trial by trial.

    Attributes:
        inputs: (trials, tokens, in), what the layer read.
        outputs: (trials, tokens, out), the gradient of the loss by what it wrote.
    """

    inputs: Tensor
    outputs: Tensor

    def form(self) -> Tensor:
        """Return the gradients themselves, (trials, out, in)."""
        return self.outputs.mT @ self.inputs


@dataclass(frozen=True)
class EmbeddingLookup:
    """The gradient of an embedding table: row `ids[t]` gathers `outputs[t]`.

    Attributes:
        ids: (trials, tokens) int64.
        outputs: (trials, tokens, width), the gradient of the loss by what was looked up.
        rows: of the table.
    """

    ids: Tensor
    outputs: Tensor
    rows: int

    def form(self) -> Tensor:
        """Return the gradients themselves, (trials, rows, width)."""
        trials, _, width = self.outputs.shape
        table = self.outputs.new_zeros(trials, self.rows, width)
        return table.scatter_add(1, self.ids[..., None].expand_as(self.outputs), self.outputs)


Gradient = Product | EmbeddingLookup | Tensor
"""A parameter's gradient; a Tensor is (trials, numel), formed."""


@dataclass(frozen=True)
class Trace:
    """One pass over a stack of trials.

    Attributes:
        losses: (trials,), the victim's own.
        gradients: by parameter name.
    """

    losses: Tensor
    gradients: Mapping[str, Gradient]


def flatten(gradient: Gradient) -> Tensor:
    """Return the gradients themselves, (trials, numel)."""
    return gradient if isinstance(gradient, Tensor) else gradient.form().flatten(1)


def make_empty(parameter: Tensor, trials: int) -> Gradient:
    """Return the gradient of a parameter that was not read: a product over no tokens, or zeros."""
    if parameter.ndim < 2 or parameter.shape[0] == 1:
        return parameter.new_zeros(trials, parameter.numel())
    out, ins = parameter.flatten(1).shape
    return Product(parameter.new_zeros(trials, 0, ins), parameter.new_zeros(trials, 0, out))


def accumulate(gradients: dict[str, Gradient], name: str, more: Gradient) -> None:
    """Add to a parameter's gradient; a layer called twice reads more tokens."""
    there = gradients.get(name)
    if there is None:
        gradients[name] = more
    elif isinstance(there, Product) and isinstance(more, Product):
        gradients[name] = Product(
            torch.cat([there.inputs, more.inputs], 1), torch.cat([there.outputs, more.outputs], 1)
        )
    elif isinstance(there, EmbeddingLookup) and isinstance(more, EmbeddingLookup):
        gradients[name] = EmbeddingLookup(
            torch.cat([there.ids, more.ids], 1),
            torch.cat([there.outputs, more.outputs], 1),
            there.rows,
        )
    else:
        gradients[name] = flatten(there) + flatten(more)


def join(alone: list[Gradient]) -> Gradient:
    """Join one parameter's gradients of trials traced alone."""
    first = alone[0]
    if isinstance(first, Tensor):
        return torch.cat([one for one in alone if isinstance(one, Tensor)])
    if isinstance(first, Product):
        products = [one for one in alone if isinstance(one, Product)]
        inputs = torch.cat([one.inputs for one in products])
        return Product(inputs, torch.cat([one.outputs for one in products]))
    lookups = [one for one in alone if isinstance(one, EmbeddingLookup)]
    ids = torch.cat([one.ids for one in lookups])
    return EmbeddingLookup(ids, torch.cat([one.outputs for one in lookups]), first.rows)
