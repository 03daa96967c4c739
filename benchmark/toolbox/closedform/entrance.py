"""What the server knows of the first attention of a victim of images, and what an update adds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmark.contract import Observation
from benchmark.errors import NotApplicable
from benchmark.toolbox.closedform.solve import exact
from benchmark.victims import ImageVictim, ParameterSlice, weights


@dataclass(frozen=True)
class Entrance:
    """The first attention's inputs as functions of a patch, its weights and their gradients.

    A token is `weight @ patch + offsets[:, t]` over a scale that the layer norm makes, plus
    `shift`. Where q, k and v have biases, every token ends in a 1 and every weight in its bias, so
    that nothing below speaks of biases; `inputs` is the width then made, width or width + 1. All
    in float64 on the CPU.

    Attributes:
        weight: (inputs, pixels), of the patch embedding, behind the norm's centring and scale.
        offsets: (inputs, patches), the same of the embedding's bias and each patch's position.
        shift: (inputs,), the norm's; zeros where it has none.
        norm: scale (width,) and epsilon of the layer norm; None where there is none.
        prefix: (inputs, prefix tokens), as the attention reads them: the same for every image.
        query: (heads, head size, inputs), and so `key` and both gradients.
        key: see `query`.
        query_gradient: see `query`.
        key_gradient: see `query`.
        gradient: (rows, inputs), of q, k and v above each other: its rows are sums of tokens.
        embedding_gradient: (width, pixels), whose rows are sums of patches.
    """

    weight: Tensor
    offsets: Tensor
    shift: Tensor
    norm: tuple[Tensor, float] | None
    prefix: Tensor
    query: Tensor
    key: Tensor
    query_gradient: Tensor
    key_gradient: Tensor
    gradient: Tensor
    embedding_gradient: Tensor

    @property
    def patches(self) -> int:
        """Number of patches of an image."""
        return self.offsets.shape[1]

    def tokens(self, patches: Tensor, positions: Tensor) -> Tensor:
        """Return what the attention reads of patches (n, pixels) at positions (n,), (inputs, n)."""
        columns = self.weight @ patches.T + self.offsets[:, positions]
        return _normed(columns, self.norm, self.shift)

    @classmethod
    def of(cls, seen: Observation) -> Entrance:
        """Read an observation; the update must hold what `check_entrance` asks for."""
        victim = ImageVictim.of(seen.model)
        parts, known, update = victim.anatomy, weights(seen.model), seen.update
        block, embedding = parts.blocks[0], parts.patch_embedding
        qkv = (block.query, block.key, block.value)
        biased = all(_bias(part) in known and _bias(part) in update for part in qkv)
        read = _biased if biased else _plain
        end = _end if biased else _as_is

        positions = exact(known[parts.position][0])
        offsets = exact(known[f"{embedding}.bias"]) + positions[parts.position_offset :]
        weight, offsets = exact(known[f"{embedding}.weight"]).flatten(1), offsets.T
        prefix = torch.stack([exact(known[name]).flatten() for name in parts.prefix], dim=1)
        if parts.position_offset:
            prefix = prefix + positions[: parts.position_offset].T
        norm = None
        shift = torch.zeros_like(offsets[:, :1])
        if block.attention_norm is not None:
            scale = exact(known[f"{block.attention_norm}.weight"])
            epsilon: Any = victim.network.get_submodule(block.attention_norm).eps
            norm = scale, float(epsilon)
            shift = exact(known[f"{block.attention_norm}.bias"])[:, None]
            weight, offsets, prefix = (
                scale[:, None] * (part - part.mean(0)) for part in (weight, offsets, prefix)
            )
        # a norm divides by what is unknown, so that the 1 at a token's end comes with its shift
        weight, shift = end(weight, 0.0), end(shift, float(norm is not None))[:, 0]
        offsets, prefix = (end(part, float(norm is None)) for part in (offsets, prefix))
        gradients = [read(part, update) for part in qkv]
        by_head = partial(torch.unflatten, dim=0, sizes=(parts.heads, -1))
        return cls(
            weight=weight,
            offsets=offsets,
            shift=shift,
            norm=norm,
            prefix=_normed(prefix, norm, shift),
            query=by_head(read(block.query, known)),
            key=by_head(read(block.key, known)),
            query_gradient=by_head(gradients[0]),
            key_gradient=by_head(gradients[1]),
            gradient=torch.cat(gradients),
            embedding_gradient=exact(update[f"{embedding}.weight"]).flatten(1),
        )


def check_entrance(seen: Observation) -> None:
    """Raise NotApplicable where the update lacks a gradient that an Entrance is made of."""
    parts = ImageVictim.of(seen.model).anatomy
    first = parts.blocks[0]
    wanted = {part.name for part in (first.query, first.key, first.value)}
    wanted.add(f"{parts.patch_embedding}.weight")
    if missing := sorted(wanted - set(seen.update)):
        raise NotApplicable(f"the update holds no gradient of {', '.join(missing)}")


def _normed(columns: Tensor, norm: tuple[Tensor, float] | None, shift: Tensor) -> Tensor:
    """Return tokens (inputs, n) of columns that a norm has centred and scaled, not divided."""
    if norm is None:
        return columns
    scale, epsilon = norm
    spread = (columns[: len(scale)] / scale[:, None]).square().mean(0)
    return columns / (spread + epsilon).sqrt() + shift[:, None]


def _bias(part: ParameterSlice) -> str:
    return part.name.removesuffix(".weight") + ".bias"


def _plain(part: ParameterSlice, tensors: Mapping[str, Tensor]) -> Tensor:
    return exact(part.of(tensors))


def _biased(part: ParameterSlice, tensors: Mapping[str, Tensor]) -> Tensor:
    """Return a weight or its gradient (out, in + 1), the bias as its last column."""
    bias = tensors[_bias(part)]
    bias = bias if part.rows is None else bias[part.rows]
    return torch.cat([exact(part.of(tensors)), exact(bias)[:, None]], dim=1)


def _as_is(columns: Tensor, last: float) -> Tensor:
    return columns


def _end(columns: Tensor, last: float) -> Tensor:
    """Return columns (width, n) with one row more, of one value."""
    return torch.cat([columns, columns.new_full((1, columns.shape[1]), last)])
