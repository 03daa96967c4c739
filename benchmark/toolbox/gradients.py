"""The gradient that a client with given images would send."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmark.contract import ImageBatch, Observation, Update
from benchmark.victims import ImageVictim, weights


def gradient_of_images(seen: Observation, images: Tensor, labels: Tensor) -> Update:
    """Return the gradient of the victim's loss, of the parameters that were sent.

    Where a client draws, of a defense's masks or of PRECODE's codes, this takes none and the mean.

    Args:
        seen: whose model and names of parameters are used; nothing in it is changed.
        images: (batch, channel, size, size), pixels in [0, 1].
        labels: (batch,) int64.
    """
    victim = ImageVictim.of(seen.model)
    held = weights(victim)
    # a search may have frozen the model's own
    known = {name: held[name].detach().requires_grad_() for name in seen.update}
    loss = functional_call(
        _Loss(victim),
        {f"victim.network.{name}": weight for name, weight in known.items()},
        (ImageBatch(images, labels),),
    )
    gradients = torch.autograd.grad(
        loss, list(known.values()), allow_unused=True, materialize_grads=True
    )
    return Update(dict(zip(known, gradients, strict=True)))


class _Loss(nn.Module):
    """A victim's loss as what a module computes, which is what takes other weights."""

    def __init__(self, victim: ImageVictim) -> None:
        super().__init__()
        self.victim = victim

    def forward(self, batch: ImageBatch) -> Tensor:
        return self.victim.loss(batch)
