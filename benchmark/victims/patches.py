"""Images to patches and back; a flattened patch is (channel, row, column)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmark.contract import Victim
from benchmark.victims.victim import ImageVictim


def to_patches(images: Tensor, patch: int) -> Tensor:
    """Cut (batch, channel, size, size) into (batch, patches, channel * patch * patch)."""
    return functional.unfold(images, patch, stride=patch).transpose(1, 2)


def to_images(patches: Tensor, patch: int, size: int) -> Tensor:
    """Join (batch, patches, channel * patch * patch) to (batch, channel, size, size)."""
    return functional.fold(patches.transpose(1, 2), size, patch, stride=patch)


def images_from_patches(patches: Tensor, model: Victim, batch_size: int) -> Tensor:
    """Return a batch of one image repeated, from its patches as the victim's network sees them.

    Args:
        patches: (patches, channel * side * side), normalised by the victim, any float type; a
            side is that of a patch and its overlap.
        model: the victim.
        batch_size: how often the image is repeated.

    Returns:
        (batch_size, channel, size, size) float32, pixels in [0, 1] where the patches are right.
    """
    victim = ImageVictim.of(model)
    parts = victim.anatomy
    columns, side = patches[None].transpose(1, 2), parts.patch + parts.overlap
    fold = partial(
        functional.fold,
        output_size=parts.size,
        kernel_size=side,
        stride=parts.patch,
        padding=parts.overlap,
    )
    image = fold(columns) / fold(torch.ones_like(columns))  # what overlaps is averaged
    pixels = image * victim.std.to(image) + victim.mean.to(image)
    return pixels.float().expand(batch_size, -1, -1, -1)
