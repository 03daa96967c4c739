"""Soteria (Sun et al., CVPR 2021): the representation before the head is pruned.

For images. Of each image's representation r, what the head reads, the entries whose
||d r_i / d x|| / |r_i| is smallest are set to zero, for zeroing them moves an image that is
reconstructed from r the furthest (section 4.2). The head's gradient is the outer product of its
output's gradient and r, so their columns of it vanish; all other gradients are computed on r as it
is, as in the authors' code. Differences: |r_i|, as the paper has it, where the code divides by r_i;
of a batch each image is pruned by its own ratios, where the code adds them up.

What a ViT changes: r is its class token after the last norm, and the patches' gradients and those
of the positions are sent as ever. The paper defends convolutional networks, whose last layers alone
leak in closed form.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from benchmark.api import Batch, Defense, ImageBatch, ImageVictim, Update, Victim, layer_inputs

_AT_ONCE = 32  # entries whose gradients by the image are computed together


@dataclass(frozen=True)
class Soteria(Defense):
    """Zeroes columns of the head's gradient."""

    pruned: Annotated[float, Field(ge=0, le=1)] = 0.8
    """Share of the representation's entries that are set to zero."""

    def compute_update(
        self,
        batch: Batch,
        model: Victim,
        gradient: Callable[[Batch], Update],
        draws: np.random.Generator,
    ) -> Update:
        victim = ImageVictim.of(model)
        if self.pruned == 0:
            return gradient(batch)
        sent = [self._pruned(one, victim, gradient(one)) for one in batch.examples()]
        if len(sent) == 1:
            return sent[0]
        return Update({name: torch.stack([one[name] for one in sent]).mean(0) for name in sent[0]})

    def _pruned(self, one: Batch, victim: ImageVictim, update: Update) -> Update:
        """Return the update of one image, less the columns that its representation loses."""
        assert isinstance(one, ImageBatch)
        head = f"{victim.head}.weight"
        columns = sensitivity(victim, one).argsort()[: round(self.pruned * update[head].shape[1])]
        return Update({**update, head: update[head].index_fill(1, columns, 0)})


def sensitivity(victim: ImageVictim, one: ImageBatch) -> Tensor:
    """Return ||d r_i / d x|| / |r_i| for each entry of what the head reads of an image, (width,).

    Args:
        victim: the model.
        one: a batch of one image; pixels are those that the victim is given, in [0, 1].
    """
    images = one.images.to(victim.device).requires_grad_()
    masked = None if one.masked is None else one.masked.to(victim.device)
    with layer_inputs(victim.network.get_submodule(victim.head), stop=True) as read:
        victim(images, masked)
    (entries,) = read[0]
    norms = [
        torch.autograd.grad(entries, images, some, retain_graph=True, is_grads_batched=True)[0]
        .flatten(1)
        .norm(dim=1)
        for some in torch.split(torch.eye(len(entries), device=images.device), _AT_ONCE)
    ]
    return torch.cat(norms) / entries.detach().abs()
