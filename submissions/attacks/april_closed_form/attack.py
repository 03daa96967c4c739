"""APRIL's closed form (Lu et al., CVPR 2022, Algorithm 1).

The inputs of the first attention from the position gradient, then pixels by the pseudo-inverse of
the patch embedding. Differences from the paper: the linear systems are solved in float64.

Papers apply it to networks that normalise before their first attention, without a word on how:
`anywhere=True` solves the same equations there, as they stand, outside of what they are proved for.
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
    weights,
)
from benchmark.toolbox.closedform import patches_from_embeddings, tokens_from_attention


@dataclass(frozen=True)
class AprilClosedForm(Attack):
    """Solves eq. 8 of the paper; its precondition is the first attention directly on z."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    anywhere: bool = False
    """Whether it goes on where the first attention does not read the embeddings directly."""

    def applies(self, seen: Observation) -> None:
        parts = ImageVictim.of(seen.model).anatomy
        first = parts.blocks[0]
        if not self.anywhere and (first.attention_norm is not None or first.residual):
            raise NotApplicable("the first attention does not read the embeddings directly")
        if parts.position not in seen.update:
            raise NotApplicable("the update holds no position gradient")
        wanted = {first.query.name, first.key.name, first.value.name}
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        parts, known = ImageVictim.of(seen.model).anatomy, weights(seen.model)
        first = parts.blocks[0]
        qkv = (first.query, first.key, first.value)
        tokens = tokens_from_attention(
            seen.update[parts.position][0],
            [part.of(known) for part in qkv],
            [part.of(seen.update) for part in qkv],
        )
        embeddings = tokens - known[parts.position][0].to(tokens)
        patches = patches_from_embeddings(
            embeddings[parts.position_offset :],
            known[f"{parts.patch_embedding}.weight"].flatten(1),
            known[f"{parts.patch_embedding}.bias"],
        )
        return Reconstruction(images_from_patches(patches, seen.model, seen.batch_size))
