"""Parts of the update stay on the client, by anatomy (GradViT, Hatamizadeh et al., CVPR 2022).

For images and text. The paper's Tables 4 and 5 ask what an attack loses without the gradients of
some blocks, or of their attention or MLP; read as defenses, these are what a client might not send.
A part's norm goes with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from benchmark.api import Defense, ImageVictim, NotApplicable, TextVictim, Update, Victim

Modules = set[str]


@dataclass(frozen=True)
class Withhold(Defense):
    """Removes tensors from the update."""

    part: Literal["blocks", "attention", "mlp", "positions", "embeddings"] = "blocks"
    """Whole blocks, their attention, their MLP, the positions, or the patch or token embedding."""
    blocks: Annotated[str, Field(pattern=r"^[1-9]\d*-[1-9]\d*$")] | None = None
    """First and last of the blocks, as `1-4`, counted from 1; all of them where none is said."""

    def __post_init__(self) -> None:
        if self.blocks is None:
            return
        if self.part in ("positions", "embeddings"):
            raise ValueError(f"{self.part} are of no block; wanted no blocks, got {self.blocks}")
        first, last = _ends(self.blocks)
        if first > last:
            raise ValueError(f"blocks from {first} to {last}; wanted the first one first")

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        hidden = self._hidden(model)
        names = [name for name in update if {name, _module(name)} & hidden]
        if not names:
            raise NotApplicable(f"the update has no part such as {self} withholds")
        return update.without(*names)

    def _hidden(self, model: Victim) -> Modules:
        """Return the tensors to withhold, or the modules that they are of."""
        if self.part == "positions":
            return {model.anatomy.position}
        embedding, blocks = _of_text(model) if model.track == "text" else _of_images(model)
        if self.part == "embeddings":
            return {embedding}
        first, last = _ends(self.blocks) if self.blocks else (1, len(blocks))
        hidden: Modules = set()
        for attention, mlp in blocks[first - 1 : last]:
            hidden |= {"attention": attention, "mlp": mlp, "blocks": attention | mlp}[self.part]
        return hidden


def _ends(blocks: str) -> tuple[int, int]:
    """Return the first and the last of blocks that are said as `1-4`."""
    first, _, last = blocks.partition("-")
    return int(first), int(last)


def _of_images(model: Victim) -> tuple[str, list[tuple[Modules, Modules]]]:
    """Return the embedding, and of each block the modules of its attention and of its MLP."""
    parts = ImageVictim.of(model).anatomy
    blocks = []
    for block in parts.blocks:
        inputs = {_module(one.name) for one in (block.query, block.key, block.value)}
        norm = {block.attention_norm} if block.attention_norm else set()
        blocks.append((inputs | {block.attention_projection} | norm, {*block.mlp, block.mlp_norm}))
    return parts.patch_embedding, blocks


def _of_text(model: Victim) -> tuple[str, list[tuple[Modules, Modules]]]:
    """Return the same of a language model."""
    parts = TextVictim.of(model).anatomy
    blocks = []
    for block in parts.blocks:
        layers = (block.query, block.key, block.value, block.projection)
        attention = {_module(layer.weight.name) for layer in layers}
        mlp = {_module(layer.weight.name) for layer in (block.first, block.second)}
        blocks.append((attention | {block.attention_norm}, mlp | {block.mlp_norm}))
    return parts.token_embedding, blocks


def _module(name: str) -> str:
    """Return the module that a parameter is of."""
    return name.rpartition(".")[0]
