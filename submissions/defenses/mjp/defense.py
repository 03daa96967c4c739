"""Masked Jigsaw Puzzles: MJP (Liu et al., "Breaking the Chain of Gradient Leakage", 2205.12551).

For images. Rectangles of patches are masked until a share gamma of them is covered, the masked
patches change places among themselves, and all of them get one trained "unknown" position in place
of their own; the positions of the others are regressed on their places (dense absolute
localisation, DAL). Each image has a mask of its own. The server knows the model, never a mask.
Table 2 of the paper by arguments:

    B  no positions           gamma=0.0,positions=none,localisation=none
    C  SPP, pixels too        gamma=1.0,positions=kept,pixels=true,localisation=none
    D  DAL alone              gamma=0.0,positions=kept
    E  JP                     positions=kept,localisation=none
    F  JP, IDX                positions=indexed,localisation=none
    G  JP, UNK                localisation=none
    H  JP, UNK, DAL (PCA)     localisation=pca
    I  JP, UNK, DAL (LN)      localisation=linear
    J  JP, UNK, DAL (NLN)     the defaults

Differences from the paper: the last rectangle is cut so that the share is gamma exactly; the
gradient of DAL by PCA takes the principal directions as fixed. Where the paper leaves it open: IDX
is, as in the authors' code, a second table of positions added at the same places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat
from torch import Tensor

from benchmark.api import (
    Batch,
    Defense,
    ImageBatch,
    ImageVictim,
    Jigsaw,
    Victim,
    to_images,
    to_patches,
)

_LEAST = 8  # patches of a rectangle, or what is left to mask
_ASPECT = math.log(0.3)  # of a rectangle's height over its width, to the same below 0


@dataclass(frozen=True)
class MJP(Defense):
    """Masks, shuffles and hides positions before the gradient, and adds DAL to the loss."""

    gamma: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share of the patches that are masked."""
    positions: Literal["unknown", "kept", "indexed", "none"] = "unknown"
    """Of masked patches: a shared one, or those of their places; a second table; of no patch any.
    """
    pixels: bool = False
    """Whether the pixels within masked patches are shuffled too, alike in all of an image."""
    localisation: Literal["none", "pca", "linear", "mlp"] = "mlp"
    """How DAL maps a position to its row and column."""
    weight: NonNegativeFloat = 0.01
    """Of DAL in the loss."""

    def __post_init__(self) -> None:
        if self.positions == "none" and self.localisation != "none":
            raise ValueError("without positions there are none to localise; wanted none of both")

    def harden(self, model: Victim, generator: torch.Generator) -> Victim:
        victim = ImageVictim.of(model)
        _ = victim.anatomy  # not applicable to a model without patches
        if self.positions == "none":
            return victim.with_fixed_positions("zeros")
        jigsaw = Jigsaw(
            unknown=self.positions == "unknown",
            index=self.positions == "indexed",
            localisation=None if self.localisation == "none" else self.localisation,
            weight=self.weight,
        )
        return (
            model if jigsaw == Jigsaw(weight=self.weight) else victim.with_jigsaw(jigsaw, generator)
        )

    def protect_batch(self, batch: Batch, model: Victim, draws: np.random.Generator) -> Batch:
        assert isinstance(batch, ImageBatch)
        parts = ImageVictim.of(model).anatomy
        side = parts.size // parts.patch
        if round(self.gamma * side**2) == 0:
            return batch
        patches = to_patches(batch.images, parts.patch)
        masks = [draw_mask(side, self.gamma, draws) for _ in range(len(batch))]
        for image, mask in zip(patches, masks, strict=True):
            own = torch.from_numpy(draws.permutation(int(mask.sum())))
            moved = image[mask][own]
            if self.pixels:
                split = moved.unflatten(1, (-1, parts.patch**2))  # channels move together
                order = torch.from_numpy(draws.permutation(parts.patch**2))
                moved = split[:, :, order].flatten(1)
            image[mask] = moved
        images = to_images(patches, parts.patch, parts.size)
        return replace(batch, images=images, masked=torch.stack(masks))


def draw_mask(side: int, gamma: float, draws: np.random.Generator) -> Tensor:
    """Return which patches of a grid of side x side are masked, (side * side,) bool.

    Block-wise (BEiT, Bao et al., 2022): rectangles of random area and aspect, wherever they fall.

    Args:
        side: patches in a row.
        gamma: share of the patches.
        draws: the client's.
    """
    mask = np.zeros(side * side, dtype=bool)
    places = np.arange(side * side).reshape(side, side)
    while (left := round(gamma * side**2) - int(mask.sum())) > 0:
        area = draws.uniform(min(_LEAST, left), left)
        aspect = math.exp(draws.uniform(_ASPECT, -_ASPECT))
        height, width = (
            min(max(round(math.sqrt(size)), 1), side) for size in (area * aspect, area / aspect)
        )
        top, start = (int(draws.integers(side - size + 1)) for size in (height, width))
        found = places[top : top + height, start : start + width].flatten()
        mask[found[~mask[found]][:left]] = True
    return torch.from_numpy(mask)
