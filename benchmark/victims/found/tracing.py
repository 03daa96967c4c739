"""What layers of a foreign network read, whether it is given by place or by name."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.errors import NotApplicable


class _AllRead(Exception):  # noqa: N818  (nothing went wrong)
    pass


def first_inputs(network: nn.Module, given: Tensor, layers: tuple[nn.Module, ...]) -> list[Tensor]:
    """Run a network once and return the first tensor that each of some layers read first.

    Raises:
        NotApplicable: a layer did not run.
    """
    read: dict[nn.Module, Tensor] = {}

    def keep(layer: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        tensors = [each for each in (*args, *named.values()) if isinstance(each, Tensor)]
        read.setdefault(layer, tensors[0].detach())
        if len(read) == len(set(layers)):
            raise _AllRead

    with ExitStack() as hooks, torch.random.fork_rng(devices=[]):
        for layer in layers:
            hooks.enter_context(layer.register_forward_pre_hook(keep, with_kwargs=True))
        with suppress(_AllRead):
            network(given)
    if len(read) < len(set(layers)):
        raise NotApplicable("a forward pass does not run the layers that its modules name")
    return [read[layer] for layer in layers]
