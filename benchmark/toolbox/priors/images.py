"""Priors on the pixels alone: each maps normalised images to one penalty a trial.

Images are (trials, batch, channel, height, width), penalties (trials,). Norms have gradient zero
where they are zero, so a flat start does no harm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import functional


@dataclass(frozen=True)
class TotalVariation:
    """How much neighbouring pixels differ.

    - anisotropic: mean |dx| + mean |dy| over batch, channel and place. Inverting Gradients
      (Geiping et al., NeurIPS 2020), in its authors' code.
    - isotropic: mean of sqrt(dx^2 + dy^2), differences across the last row and column 0 (Rudin,
      Osher and Fatemi, 1992).
    - euclidean: |dx| + |dy| + |both diagonals|, each a Euclidean norm over all of a trial's batch,
      not a mean. DeepInversion (Yin et al., CVPR 2020), in its authors' code; GradInversion and
      GradViT (its eq. 11) build on it and print no formula.
    """

    kind: Literal["anisotropic", "isotropic", "euclidean"] = "anisotropic"

    def __call__(self, images: Tensor) -> Tensor:
        """Return the penalty of each trial, (trials,)."""
        dx, dy = images.diff(dim=-1), images.diff(dim=-2)
        if self.kind == "anisotropic":
            return dx.abs().flatten(1).mean(1) + dy.abs().flatten(1).mean(1)
        if self.kind == "isotropic":
            both = torch.stack([functional.pad(dx, (0, 1)), functional.pad(dy, (0, 0, 0, 1))])
            return vector_norm(both, dim=0).flatten(1).mean(1)
        falling = images[..., 1:, 1:] - images[..., :-1, :-1]
        rising = images[..., 1:, :-1] - images[..., :-1, 1:]
        lengths = [vector_norm(each.flatten(1), dim=1) for each in (dx, dy, falling, rising)]
        return torch.stack(lengths).sum(0)


@dataclass(frozen=True)
class EuclideanNorm:
    """The Euclidean norm of an image, not squared, mean over the batch.

    The l2 prior in the code of DeepInversion, on which GradInversion and GradViT (its eq. 11)
    build; at 224 x 224 x 3 its gradient is some 800 times smaller than that of the square.
    """

    def __call__(self, images: Tensor) -> Tensor:
        """Return the penalty of each trial, (trials,)."""
        return vector_norm(images, dim=(2, 3, 4)).mean(1)


@dataclass(frozen=True)
class PatchBoundary:
    """How much pixels differ across the borders of patches.

    Eq. 8 of GradViT (Hatamizadeh et al., CVPR 2022), with x[batch, row, column, channel]:
    sum_{k=1}^{H/P-1} |x[:, Pk, :, :] - x[:, Pk-1, :, :]|_2
    + sum_{k=1}^{W/P-1} |x[:, :, Pk, :] - x[:, :, Pk-1, :]|_2.
    Each norm runs along one border through all of a trial's batch: as printed, not a mean.

    Attributes:
        patch: side P of a patch, pixels; images that it does not tile are a ValueError.
    """

    patch: int

    def __post_init__(self) -> None:
        if self.patch < 1:
            raise ValueError(f"PatchBoundary: patch is {self.patch}; it must be 1 or more")

    def __call__(self, images: Tensor) -> Tensor:
        """Return the penalty of each trial, (trials,)."""
        height, width = images.shape[-2:]
        if height % self.patch or width % self.patch:
            raise ValueError(
                f"PatchBoundary: {self.patch} px patches must tile images of {height} x {width} px"
            )
        after, before = slice(self.patch, None, self.patch), slice(self.patch - 1, -1, self.patch)
        rows = images[..., after, :] - images[..., before, :]
        columns = images[..., after] - images[..., before]
        return (  # (trials, border) each before the sum
            vector_norm(rows, dim=(1, 2, 4)).sum(1) + vector_norm(columns, dim=(1, 2, 3)).sum(1)
        )
