"""What a client sent, in any form a user has it, as an `Update` in units of a gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import torch
from torch import Tensor, nn

from benchmark.contract import Update
from benchmark.errors import BenchmarkError

Sent = Mapping[str, Tensor] | Sequence[Tensor | None] | nn.Module
"""Tensors by parameter name, in the order of `named_parameters`, or a module with `.grad`."""


def read_update(sent: Sent, weights: Mapping[str, Tensor]) -> Update:
    """Return an update by name, float32 and where the weights lie.

    Args:
        sent: see `Sent`; what is not in it was withheld.
        weights: the victim's parameters by name, in their order.

    Raises:
        BenchmarkError: a name or a shape is not the model's, or a value is not finite.
    """
    update = {}
    for name, tensor in _by_name(sent, weights).items():
        if name not in weights:
            near = get_close_matches(name, weights, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise BenchmarkError(f"update: {name} is no parameter of the model{hint}")
        if not isinstance(tensor, Tensor):
            raise BenchmarkError(f"update: {name} is a {type(tensor).__name__}; wanted a tensor")
        weight = weights[name]
        if tensor.shape != weight.shape:
            raise BenchmarkError(
                f"update: {name} is {tuple(tensor.shape)}; the model's is {tuple(weight.shape)}"
            )
        if not tensor.isfinite().all():
            raise BenchmarkError(f"update: {name} holds NaN or infinity; wanted finite numbers")
        update[name] = tensor.detach().to(weight.device, torch.float32, copy=True)
    if not update:
        raise BenchmarkError("the update holds no tensor; was loss.backward() called?")
    return Update(update)


def read_difference(
    before: Mapping[str, Tensor], after: Mapping[str, Tensor], names: Sequence[str]
) -> dict[str, Tensor]:
    """Return after less before, of the parameters named, which `before` holds.

    Raises:
        BenchmarkError: one of them is missing after, or has another shape.
    """
    found = {}
    for name in names:
        if name not in after:
            raise BenchmarkError(f"after holds no {name}, which is a parameter of the model")
        if before[name].shape != after[name].shape:
            raise BenchmarkError(
                f"{name} is {tuple(before[name].shape)} before and {tuple(after[name].shape)} after"
            )
        found[name] = after[name].detach().double() - before[name].detach().double()
    return found


def in_gradients(difference: Update, rate: float, steps: int) -> Update:
    """Return a difference of weights, after less before, in units of a gradient."""
    return Update({name: each / -(rate * steps) for name, each in difference.items()})


def _by_name(sent: Sent, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    if isinstance(sent, nn.Module):
        own = sent.named_parameters()
        return {name: each.grad for name, each in own if each.grad is not None}
    if isinstance(sent, Mapping):
        return {name: each for name, each in sent.items() if each is not None}
    if not isinstance(sent, Sequence):
        raise BenchmarkError(
            f"update is a {type(sent).__name__}; wanted tensors by name, in a list, or a module"
        )
    if len(sent) != len(weights):
        raise BenchmarkError(
            f"update holds {len(sent)} tensors; the model has {len(weights)} parameters"
        )
    pairs = zip(weights, sent, strict=True)
    return {name: each for name, each in pairs if each is not None}
