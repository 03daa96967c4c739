"""Whether a model's forward pass is what it was: what a defense changed in it crosses no wall."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn


def marks(model: nn.Module) -> list[object]:
    """Return what is another where a model's modules, hooks, settings or weights are touched."""
    return [mark for name, module in model.named_modules() for mark in (name, *_of(module))]


def _of(module: nn.Module) -> Iterator[object]:
    yield type(module)
    for name, held in vars(module).items():
        yield name
        yield from _held(held)


def _held(held: Any) -> Iterator[object]:  # noqa: ANN401  (whatever a module keeps)
    if isinstance(held, Tensor):
        yield id(held), held._version
    elif isinstance(held, dict):
        for key, each in held.items():
            yield key
            yield from _held(each)
    else:
        yield id(held)
