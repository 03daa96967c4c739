"""A client: private batch and victim in, update out."""

from __future__ import annotations

import torch
from torch.nn import functional

from benchmark.contract import Batch, Update
from benchmark.victims import Victim


def fedsgd(model: Victim, batch: Batch) -> Update:
    """Return one batch's gradient of the mean cross-entropy, by parameter name, float32."""
    weights = model.weights()
    device = next(iter(weights.values())).device
    loss = functional.cross_entropy(model(batch.images.to(device)), batch.labels.to(device))
    gradients = torch.autograd.grad(loss, list(weights.values()))
    return Update(dict(zip(weights, gradients, strict=True)))
