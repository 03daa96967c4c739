"""A variational bottleneck before a network's head: PRECODE (Scheliga et al., WACV 2022)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

BOTTLENECK = "bottleneck"
"""Name in the network of what is added."""


class VariationalBottleneck(nn.Module):
    """A representation (batch, width) to one of the same shape, through a normal distribution.

    Attributes:
        draw: standard normal numbers of a shape; where it is None the mean goes through.
    """

    draw: Callable[[torch.Size], Tensor] | None = None

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Linear(width, 2 * latent)
        self.decoder = nn.Linear(latent, width)

    def forward(self, representation: Tensor) -> Tensor:
        mean, log_variance = self.encoder(representation).chunk(2, dim=1)
        if self.draw is not None:
            drawn = self.draw(mean.shape).to(mean)
            mean = mean + (0.5 * log_variance).exp() * drawn
        restored: Tensor = self.decoder(mean)
        return restored

    def divergence(self, representation: Tensor) -> Tensor:
        """Return the mean Kullback-Leibler divergence from the standard normal, in nats."""
        mean, log_variance = self.encoder(representation).chunk(2, dim=1)
        each = mean.square() + log_variance.exp() - log_variance - 1
        return 0.5 * each.sum(1).mean()

    def before(self, _head: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Stand before the head, as its hook: a method, so that a copy's head calls the copy."""
        return (self(given[0]),)


def add_bottleneck(network: nn.Module, head: str, latent: int) -> None:
    """Add a bottleneck to a network, whose layers start as torch's do.

    Args:
        network: is changed.
        head: prefix of its last linear layer.
        latent: dimensions of the distribution.
    """
    last = network.get_submodule(head)
    assert isinstance(last, nn.Linear)
    bottleneck = VariationalBottleneck(last.in_features, latent)
    network.add_module(BOTTLENECK, bottleneck)
    last.register_forward_pre_hook(bottleneck.before)
