"""Closed form from the span of the first attention's inputs: no position gradient is read.

Source: derived for this benchmark. It goes through the defenses that APRIL (Lu et al., CVPR
2022, section 4.2) recommends, fixed positions and withheld position gradients, because the
server knows the positions themselves. Exact for one image where the rank of the patches and the
number of tokens together stay below the width.

Adaptive variants add a prior: beyond that, and where the gradient carries noise, the likeliest
image of little total variation; with 8-bit levels granted, the levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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
from benchmark.toolbox.closedform.adaptive import Prior, check_prior, with_prior
from benchmark.toolbox.closedform.posterior import span_posterior


@dataclass(frozen=True)
class SpanClosedForm(Attack):
    """Two row spaces and one least-squares solve that all patches share."""

    prior: Prior | None = None
    """What completes the patches where equations or accuracy are missing; see the toolbox."""

    @property
    def needs(self) -> frozenset[Grant]:
        levels = {Grant.PIXEL_LEVELS} if self.prior == "levels" else set()
        return frozenset({Grant.BATCH_SIZE} | levels)

    def applies(self, seen: Observation) -> None:
        parts = ImageVictim.of(seen.model).anatomy
        first = parts.blocks[0]
        wanted = {first.query.name, first.key.name, first.value.name}
        wanted.add(f"{parts.patch_embedding}.weight")
        if missing := sorted(wanted - set(seen.update)):
            raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")
        if self.prior is not None:
            check_prior(seen)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        seen = seen.averaged()
        parts, known = ImageVictim.of(seen.model).anatomy, weights(seen.model)
        first, norm = parts.blocks[0], parts.blocks[0].attention_norm
        positions = known[parts.position][0, parts.position_offset :]
        qkv = (first.query, first.key, first.value)
        attention = torch.cat([part.of(seen.update) for part in qkv])
        embedding = seen.update[f"{parts.patch_embedding}.weight"].flatten(1)
        asked: Any = {
            "tokens": parts.tokens * seen.batch_size,
            "weight": known[f"{parts.patch_embedding}.weight"].flatten(1),
            "offsets": known[f"{parts.patch_embedding}.bias"] + positions,
            "norm": None if norm is None else (known[f"{norm}.weight"], known[f"{norm}.bias"]),
            "generator": seen.generator,
        }
        patches = patches_from_span(attention, embedding, **asked)
        if self.prior is not None:
            posterior = span_posterior(attention, embedding, **asked)
            patches = with_prior(patches, posterior, seen, self.prior)
        return Reconstruction(images_from_patches(patches, seen.model, seen.batch_size))
