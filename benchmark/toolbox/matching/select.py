"""Which parameters a search matches, and how much each counts, said by a victim's anatomy.

Each rule gives names that an update may lack (a defense withheld them); `match` keeps those that
were sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from benchmark.contract import Victim
from benchmark.victims import ImageVictim


def in_blocks(model: Victim, names: Iterable[str], first: int, last: int) -> frozenset[str]:
    """Return the names that lie in blocks `first` to `last`, counted from 1, both included."""
    last = min(last, len(ImageVictim.of(model).anatomy.blocks))
    return frozenset(name for name in names if first <= _block(name) <= last)


def of_attention(model: Victim, names: Iterable[str]) -> frozenset[str]:
    """Return the names of the parameters of attention: q, k, v and the projection."""
    attention = set()
    for block in ImageVictim.of(model).anatomy.blocks:
        for part in (block.query, block.key, block.value):
            attention |= {part.name, part.name.removesuffix("weight") + "bias"}
        attention |= {f"{block.attention_projection}.{kind}" for kind in ("weight", "bias")}
    return frozenset(names) & attention


def of_mlp(model: Victim, names: Iterable[str]) -> frozenset[str]:
    """Return the names of the parameters of the MLPs."""
    layers = [layer for block in ImageVictim.of(model).anatomy.blocks for layer in block.mlp]
    return frozenset(names) & {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}


def of_positions(model: Victim, names: Iterable[str]) -> frozenset[str]:
    """Return the name of the positions, where they are trained and were sent."""
    return frozenset(names) & {model.anatomy.position}


def by_depth(model: Victim, names: Iterable[str], decay: float) -> dict[str, float]:
    """Return weights that fall with depth: 1 before the blocks, times `decay` at each block.

    What follows the blocks weighs as one block more.
    """
    parts = ImageVictim.of(model).anatomy
    before = (parts.patch_embedding, parts.position, *parts.prefix)
    weights = {}
    for name in names:
        depth = 0 if name.startswith(before) else _block(name) or len(parts.blocks) + 1
        weights[name] = decay**depth
    return weights


def by_order(names: Iterable[str]) -> dict[str, float]:
    """Return weights on a line from 1 at the first name to 0 after the last."""
    listed = list(names)
    return {name: 1 - i / len(listed) for i, name in enumerate(listed)}


def _block(name: str) -> int:
    """Return the number of the block a parameter lies in, from 1; 0 outside blocks."""
    found = re.match(r"blocks\.(\d+)\.", name)
    return int(found.group(1)) + 1 if found else 0
