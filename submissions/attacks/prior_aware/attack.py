"""The prior-aware attack on noised gradients (Hayes, Mahloujifar and Balle, NeurIPS 2023).

For one image an update. The server knows the model, so it knows the gradient that each public image
would have sent, and how likely the update is under each: what was sent is that gradient times a
factor, for it may have been clipped, plus white noise. Factor and size of the noise are taken to be
those that suit the update best, so that the law needs no figure of the defense: the likelihood of
image j is (1 - cos^2)^(-d / 2), of the angle between the update and its gradient, of d entries.

Differences: the paper's adversary answers the likeliest of a set that holds the truth, to bound
what any can do; here the set is the public split, which does not, and the answer is the mean of all
its images by their likelihood. None does better in mean square where the private image is a draw
like the public ones. The paper knows factor and noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.functional import cross_entropy

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    NotApplicable,
    Observation,
    Reconstruction,
    Stack,
    weights,
)


@dataclass(frozen=True)
class PriorAware(Attack):
    """Compares an update with the gradient of each public image."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.PUBLIC_IMAGES})

    def applies(self, seen: Observation) -> None:
        ImageVictim.of(seen.model)
        if seen.batch_size > 1:
            raise NotApplicable("batches of several public images are too many to be tried")
        if seen.knowledge.local is not None:
            raise NotApplicable("the update is of several steps, and no gradient")
        if seen.budget.gradient_evaluations == 0:
            raise NotApplicable("takes gradients of public images, and the protocol grants none")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        return self.reconstruct_stack(Stack([seen]))[0]

    def reconstruct_stack(self, stack: Stack) -> list[Reconstruction]:
        first = stack[0]
        public, tried = first.public_images, first.budget.gradient_evaluations
        sent = [_unit(list(seen.averaged().update.values())) for seen in stack]
        cosines = torch.tensor(
            [[float(update @ gradient) for update in sent] for gradient in _gradients(first, tried)]
        ).double()
        # of an angle above 90 degrees, the factor that suits best is none
        likelihood = -0.5 * len(sent[0]) * (1 - cosines.clamp_min(0).square()).log()
        return [
            Reconstruction(
                images=torch.einsum("n,nchw->chw", share.float(), public.images[: len(share)])[
                    None
                ],
                labels=torch.bincount(public.labels[: len(share)], share).argmax()[None],
                gradient_evaluations=len(share),
            )
            for share in likelihood.softmax(0).T
        ]


def _gradients(seen: Observation, most: int) -> Iterator[Tensor]:
    """Yield the gradient of each public image, a unit vector of the entries that were sent."""
    victim, public = ImageVictim.of(seen.model), seen.public_images
    known = {name: weights(victim)[name].detach().requires_grad_() for name in seen.update}
    for image, label in zip(public.images[:most, None], public.labels[:most, None], strict=True):
        normalised = (image.to(victim.mean) - victim.mean) / victim.std
        loss = cross_entropy(
            functional_call(victim.network, known, normalised), label.to(victim.device)
        )
        yield _unit(
            torch.autograd.grad(
                loss, list(known.values()), allow_unused=True, materialize_grads=True
            )
        )


def _unit(tensors: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """Return all entries as one vector of norm 1, or of zeros where all are."""
    entries = torch.cat([tensor.flatten() for tensor in tensors])
    return entries / entries.norm().clamp_min(torch.finfo(entries.dtype).tiny)
