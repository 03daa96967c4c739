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

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    NotApplicable,
    Observation,
    Reconstruction,
    Stack,
    Update,
)
from benchmark.toolbox.gradients import gradient_of_images


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
        tried = first.budget.gradient_evaluations
        images, labels = first.public_images.images[:tried], first.public_images.labels[:tried]
        sent = [_unit(seen.averaged().update) for seen in stack]
        cosines = []
        for image, label in zip(images[:, None], labels[:, None], strict=True):
            gradient = _unit(gradient_of_images(first, image, label))
            cosines.append([float(update @ gradient) for update in sent])
        # of an angle above 90 degrees, the factor that suits best is none
        square = torch.tensor(cosines).double().clamp_min(0).square()
        likelihood = -0.5 * len(sent[0]) * (1 - square).log()
        return [
            Reconstruction(
                images=torch.einsum("n,nchw->chw", share.float(), images)[None],
                labels=torch.bincount(labels, share).argmax()[None],
                gradient_evaluations=len(share),
            )
            for share in likelihood.softmax(0).T
        ]


def _unit(update: Update) -> Tensor:
    """Return all entries as one vector of norm 1, or of zeros where all are."""
    entries = torch.cat([tensor.flatten() for tensor in update.values()])
    return entries / entries.norm().clamp_min(torch.finfo(entries.dtype).tiny)
