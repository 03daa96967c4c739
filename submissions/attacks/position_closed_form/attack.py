"""Closed form from the position gradient: every ViT with learned positions, attention unused.

Source: derived for this benchmark. APRIL (Lu et al., CVPR 2022) shows that the position gradient
is the gradient of the embeddings (Theorem 3.2) and solves the attention by it; here it solves
the patch embedding, whose weight gradient is `position_gradient.T @ patches`. Norms, residuals
and pre-training do not matter. Exact for one image while patches <= width.

Adaptive variants add a prior: where patches outnumber the width, and where the gradient carries
noise, the likeliest image of little total variation; with 8-bit levels granted, the levels.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from benchmark.toolbox.closedform.adaptive import Prior, check_prior, with_prior
from benchmark.toolbox.closedform.posterior import position_posterior


@dataclass(frozen=True)
class PositionClosedForm(Attack):
    """One least-squares solve of width x patches."""

    prior: Prior | None = None
    """What completes the patches where equations or accuracy are missing; see the toolbox."""

    @property
    def needs(self) -> frozenset[Grant]:
        levels = {Grant.PIXEL_LEVELS} if self.prior == "levels" else set()
        return frozenset({Grant.BATCH_SIZE} | levels)

    def applies(self, seen: Observation) -> None:
        parts = ImageVictim.of(seen.model).anatomy
        if parts.position not in seen.update:
            raise NotApplicable("the update holds no position gradient")
        if f"{parts.patch_embedding}.weight" not in seen.update:
            raise NotApplicable("the update holds no gradient of the patch embedding")
        if self.prior is not None:
            check_prior(seen)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        seen = seen.averaged()
        parts = ImageVictim.of(seen.model).anatomy
        positions = seen.update[parts.position][0, parts.position_offset :]
        embedding = seen.update[f"{parts.patch_embedding}.weight"].flatten(1)
        patches = patches_from_positions(positions, embedding)
        if self.prior is not None:
            centred = parts.blocks[0].attention_norm is not None
            posterior = position_posterior(positions, embedding, centred=centred)
            patches = with_prior(patches, posterior, seen, self.prior)
        return Reconstruction(images_from_patches(patches, seen.model, seen.batch_size))
