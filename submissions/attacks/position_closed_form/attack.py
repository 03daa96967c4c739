"""Closed form from the position gradient: every ViT with learned positions, attention unused.

Source: derived for this benchmark. APRIL (Lu et al., CVPR 2022) shows that the position gradient
is the gradient of the embeddings (Theorem 3.2) and solves the attention by it; here it solves
the patch embedding, whose weight gradient is `position_gradient.T @ patches`. Norms, residuals
and pre-training do not matter. Exact for one image while patches <= width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    NotApplicable,
    Observation,
    Reconstruction,
    images_from_patches,
)
from benchmark.toolbox.closedform import patches_from_positions


@dataclass(frozen=True)
class PositionClosedForm(Attack):
    """One least-squares solve of width x patches."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    def applies(self, seen: Observation) -> None:
        if ImageVictim.of(seen.model).anatomy.position not in seen.update:
            raise NotApplicable("the update holds no position gradient")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        parts = ImageVictim.of(seen.model).anatomy
        patches = patches_from_positions(
            seen.update[parts.position][0, parts.position_offset :],
            seen.update[f"{parts.patch_embedding}.weight"].flatten(1),
        )
        return Reconstruction(images_from_patches(patches, seen.model, seen.batch_size))
