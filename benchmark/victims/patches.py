"""Images to patches and back; a flattened patch is (channel, row, column)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from benchmark.victims.anatomy import anatomy
from benchmark.victims.victim import Victim


def to_patches(images: Tensor, patch: int) -> Tensor:
    """Cut (batch, channel, size, size) into (batch, patches, channel * patch * patch)."""
    return functional.unfold(images, patch, stride=patch).transpose(1, 2)


def to_images(patches: Tensor, patch: int, size: int) -> Tensor:
    """Join (batch, patches, channel * patch * patch) to (batch, channel, size, size)."""
    return functional.fold(patches.transpose(1, 2), size, patch, stride=patch)


def images_from_patches(patches: Tensor, model: nn.Module, batch_size: int) -> Tensor:
    """Return a batch of one image repeated, from its patches as the victim's network sees them.

    Args:
        patches: (patches, channel * patch * patch), normalised by the victim, any float type.
        model: the victim.
        batch_size: how often the image is repeated.

    Returns:
        (batch_size, channel, size, size) float32, pixels in [0, 1] where the patches are right.
    """
    assert isinstance(model, Victim)
    parts = anatomy(model)
    image = to_images(patches[None], parts.patch, parts.size)
    pixels = image * model.std.to(image) + model.mean.to(image)
    return pixels.float().expand(batch_size, -1, -1, -1)
