"""The gradient that a client with given images would send."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from benchmark.contract import Observation, Update
from benchmark.victims import ImageVictim, weights


def gradient_of_images(seen: Observation, images: Tensor, labels: Tensor) -> Update:
    """Return the gradient of the mean cross entropy of images, of the parameters that were sent.

    Args:
        seen: whose model and names of parameters are used; nothing in it is changed.
        images: (batch, channel, size, size), pixels in [0, 1].
        labels: (batch,) int64.
    """
    victim = ImageVictim.of(seen.model)
    known = {name: weights(victim)[name].detach().requires_grad_() for name in seen.update}
    normalised = (images.to(victim.mean) - victim.mean) / victim.std
    logits = functional_call(victim.network, known, normalised)
    gradients = torch.autograd.grad(
        cross_entropy(logits, labels.to(victim.device)),
        list(known.values()),
        allow_unused=True,
        materialize_grads=True,
    )
    return Update(dict(zip(known, gradients, strict=True)))
