"""Closed form from the span of the first attention's inputs: no position gradient is read.

Source: derived for this benchmark. It goes through the defenses that APRIL (Lu et al., CVPR
2022, section 4.2) recommends, fixed positions and withheld position gradients, because the
server knows the positions themselves. Exact for one image where the rank of the patches and the
number of tokens together stay below the width.
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
    weights,
)
from benchmark.toolbox.closedform import patches_from_span


@dataclass(frozen=True)
class SpanClosedForm(Attack):
    """Two row spaces and one least-squares solve that all patches share."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    def applies(self, seen: Observation) -> None:
        parts = ImageVictim.of(seen.model).anatomy
        first = parts.blocks[0]
        wanted = {first.query.name, first.key.name, first.value.name}
        wanted.add(f"{parts.patch_embedding}.weight")
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        parts, known = ImageVictim.of(seen.model).anatomy, weights(seen.model)
        first, norm = parts.blocks[0], parts.blocks[0].attention_norm
        positions = known[parts.position][0, parts.position_offset :]
        qkv = (first.query, first.key, first.value)
        patches = patches_from_span(
            torch.cat([part.of(seen.update) for part in qkv]),
            seen.update[f"{parts.patch_embedding}.weight"].flatten(1),
            tokens=parts.tokens * seen.batch_size,
            weight=known[f"{parts.patch_embedding}.weight"].flatten(1),
            offsets=known[f"{parts.patch_embedding}.bias"] + positions,
            norm=None if norm is None else (known[f"{norm}.weight"], known[f"{norm}.bias"]),
            generator=seen.generator,
        )
        return Reconstruction(images_from_patches(patches, seen.model, seen.batch_size))
