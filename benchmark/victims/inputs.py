"""What layers read when a network runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from torch import Tensor, nn


class _AllRead(Exception):  # noqa: N818  (nothing went wrong)
    pass


@contextmanager
def layer_inputs(*layers: nn.Module, stop: bool = False) -> Iterator[list[Tensor]]:
    """Give a list of what the layers read while the block runs, in the order of their calls.

    Args:
        layers: any modules of a network.
        stop: whether the block ends as soon as there is an input for each of them, before the
            last runs: nothing that stands behind is then computed.

    Example:
        >>> import torch
        >>> network = nn.Sequential(nn.Identity(), nn.Softmax(0), nn.Linear(1, 1))
        >>> with layer_inputs(network[1], stop=True) as read:
        ...     network(torch.ones(2))
        >>> read
        [tensor([1., 1.])]
    """
    read: list[Tensor] = []

    def keep(_: nn.Module, given: tuple[Tensor, ...]) -> None:
        read.append(given[0])
        if stop and len(read) == len(layers):
            raise _AllRead

    with ExitStack() as hooks:  # takes every hook off again, whatever happens
        for layer in layers:
            hooks.enter_context(layer.register_forward_pre_hook(keep))
        with suppress(_AllRead):
            yield read
