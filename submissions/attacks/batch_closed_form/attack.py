"""Closed form for a batch: from one gradient every image whole, no labels, no positions, no search.

Source: derived for this benchmark; docs/closed-forms.md has the derivation. Attention joins no two
images, so the gradients of q and k tell which directions of the first attention's inputs are
whose; within one image's directions each patch is a least-squares solve, as by
`span_closed_form`. A sum over users with an image each is the same thing as a batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    NotApplicable,
    Observation,
    Reconstruction,
    images_from_patches,
)
from benchmark.toolbox.closedform import Entrance, check_entrance, patches_of_batch


@dataclass(frozen=True)
class BatchClosedForm(Attack):
    """One linear system for the images' spans, and one solve a patch."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    levels: bool = False
    """Whether pixels become whole levels where that fits: of `pixel_levels`, to be granted."""

    def applies(self, seen: Observation) -> None:
        parts = ImageVictim.of(seen.model).anatomy
        check_entrance(seen)
        if self.levels and seen.knowledge.pixel_levels is None:
            raise NotApplicable("pixel_levels is not granted")
        if seen.batch_size < 2:
            raise NotApplicable("a batch of one image is read by span_closed_form")
        tokens = seen.batch_size * parts.patches + parts.prefix_tokens
        if tokens > parts.width:
            raise NotApplicable(
                f"{tokens} tokens of a batch, more than the victim's width of {parts.width}"
            )
        equations = parts.width**2 // parts.heads  # heads * head size^2
        if tokens**2 > equations:
            raise NotApplicable(
                f"{tokens} tokens of a batch, more than the root of {parts.heads} heads * "
                f"{parts.width // parts.heads}^2 equations"
            )

    def reconstruct(self, seen: Observation) -> Reconstruction:
        seen = seen.averaged()
        victim = ImageVictim.of(seen.model)
        pixels = victim.anatomy.patch + victim.anatomy.overlap
        black = -victim.mean / victim.std
        white = black + 1 / victim.std  # (channel, 1, 1), as black
        constants = torch.stack([black, white]).double().cpu()
        answer = patches_of_batch(
            Entrance.of(seen),
            seen.batch_size,
            constants=constants.expand(-1, -1, pixels, pixels).flatten(1),
            device=victim.device,
            generator=seen.generator,
        )
        patches = answer.patches
        if self.levels:
            most = seen.knowledge.require(Grant.PIXEL_LEVELS) - 1
            scale, shift = (
                (most * part).double().cpu().expand(-1, pixels, pixels).flatten()
                for part in (victim.std, victim.mean)
            )
            patches = answer.in_levels(scale, shift, seen.generator)
        images = [images_from_patches(each, seen.model, 1) for each in patches]
        return Reconstruction(torch.cat(images))
