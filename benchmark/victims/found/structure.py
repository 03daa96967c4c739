"""A vision transformer's anatomy, found by its structure: modules, shapes, and what it computes.

No family is known by name. What is found in the modules is held against a forward pass: the first
block reads patches plus positions, its attention a layer norm of that. Where something else stands
between (a norm, another kind of attention, positions that rotate as well), a backward pass tells
whether positions are at least added to what the patches are embedded to. Then the form that reads
patches off the positions' gradient applies all the same, and all that asks for blocks declines.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Never

import torch
from torch import Tensor, nn

from benchmark.errors import NotApplicable, first_line
from benchmark.victims.anatomy import ImageAnatomy, ImageBlock
from benchmark.victims.found.parts import (
    block_prefix,
    blocks_of,
    final_norm,
    head_of,
    heads_of,
    positions,
    projection,
)
from benchmark.victims.found.tracing import first_inputs

_CLOSE = 1e-4  # of the largest value; float32 sums in another order differ by 1e-6
_SAME = 1e-3  # of a gradient's norm; sums of products over all patches


@dataclass(frozen=True)
class _Entrance:
    """Where images become tokens."""

    projection: str
    conv: nn.Conv2d
    position: str
    table: Tensor
    fixed: bool
    prefix: tuple[str, ...]
    size: int

    @property
    def patches(self) -> int:
        return (self.size // int(self.conv.kernel_size[0])) ** 2

    @property
    def offset(self) -> int:
        """Row of the table at which the patches begin."""
        return self.table.shape[1] - self.patches


def image_anatomy(network: nn.Module, size: int | None) -> ImageAnatomy:
    """Return where a vision transformer keeps its parts.

    Args:
        network: reads (batch, channel, size, size), and answers with logits (batch, classes).
        size: side of the image in pixels; None is what its positions are made for.

    Raises:
        NotApplicable: it is not understood, with what was wanted in one line.
    """
    entrance = _entrance(network, size)
    try:
        blocks = blocks_of(network, entrance.conv.out_channels)
        prefix_tokens = _read_by_attention(network, entrance, blocks[0])
    except NotApplicable as reason:
        if not _added(network, entrance):
            raise
        blocks, prefix_tokens = Unread(str(reason)), entrance.offset
    known = not isinstance(blocks, Unread)
    return ImageAnatomy(
        channels=entrance.conv.in_channels,
        size=entrance.size,
        patch=int(entrance.conv.kernel_size[0]),
        width=entrance.conv.out_channels,
        heads=heads_of(network, block_prefix(blocks[0])) if known else 1,
        patch_embedding=entrance.projection,
        position=entrance.position,
        position_trained=not entrance.fixed,
        prefix_tokens=prefix_tokens,
        position_offset=entrance.offset,
        prefix=entrance.prefix if prefix_tokens else (),
        blocks=blocks,
        final_norm=final_norm(network, blocks) if known else None,
        head=head_of(network, blocks if known else ()),
    )


class Unread(tuple[ImageBlock, ...]):
    """Blocks that are not understood: whoever looks at them is told why."""

    reason: str

    def __new__(cls, reason: str) -> Unread:
        """Return what raises NotApplicable with a reason."""
        made = super().__new__(cls)
        made.reason = reason
        return made

    def __getitem__(self, _: object) -> Never:
        raise NotApplicable(self.reason)

    def __iter__(self) -> Never:
        raise NotApplicable(self.reason)

    def __len__(self) -> Never:
        raise NotApplicable(self.reason)


def _entrance(network: nn.Module, size: int | None) -> _Entrance:
    name, conv = projection(network)
    position, prefix, fixed = positions(network, conv.out_channels)
    named = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    rows, extra = named[position].shape[1], sum(named[name].shape[1] for name in prefix)
    patch = int(conv.kernel_size[0])
    size = size or patch * isqrt(rows if isqrt(rows) ** 2 == rows else rows - extra)
    found = _Entrance(name, conv, position, named[position], fixed, prefix, size)
    if found.offset < 0:
        raise NotApplicable(
            f"{rows} positions of {found.patches} patches; wanted a position a patch"
        )
    return found


def _read_by_attention(network: nn.Module, entrance: _Entrance, first: ImageBlock) -> int:
    """Return the tokens before the patches, if the first attention reads what is known of them.

    Raises:
        NotApplicable: it reads something else.
    """
    conv, offset = entrance.conv, entrance.offset
    if conv.bias is None:
        raise NotApplicable(f"the patch projection {entrance.projection} has no bias; wanted one")
    query = first.query.name.removesuffix(".in_proj_weight").removesuffix(".weight")
    layers = (network.get_submodule(block_prefix(first)), network.get_submodule(query))
    embedded, (tokens, read) = _traced(network, conv, _image(entrance), layers)
    patches = embedded.shape[1]
    prefix_tokens = tokens.shape[1] - patches
    if prefix_tokens < 0 or offset not in (0, prefix_tokens):
        raise NotApplicable(
            f"the first block reads {tokens.shape[1]} tokens of {patches} patches and "
            f"{entrance.table.shape[1]} positions; wanted a token and a position a patch"
        )
    expected = embedded + entrance.table[:, offset:].to(embedded)
    if not _close(tokens[:, prefix_tokens:], expected):
        raise NotApplicable(
            "the first block does not read patches plus positions; a norm, a scale or positions "
            "of another kind stand between"
        )
    norm = first.attention_norm
    normed = None if norm is None else network.get_submodule(norm)(tokens)
    if normed is None or not _close(read, normed):
        raise NotApplicable("the first attention does not read a layer norm of its block's input")
    return prefix_tokens


def _added(network: nn.Module, entrance: _Entrance) -> bool:
    """Tell whether a position's gradient is that of its patch's embedding.

    Of a sum it is, whatever follows: the projection's gradient is then the sum over patches of
    position gradient times patch. Of a product, an interpolation or another sum it is not.
    """
    if entrance.fixed:
        return False
    conv, image = entrance.conv, _image(entrance).to(entrance.conv.weight.device)
    (given,) = first_inputs(network, image, (conv,))
    with torch.enable_grad():
        logits = network(image)
        if not isinstance(logits, Tensor) or logits.ndim != 2:
            return False
        draws = torch.Generator().manual_seed(1)
        loss = (logits * torch.randn(logits.shape, generator=draws).to(logits)).sum()
        wanted = (entrance.table, conv.weight)
        found: tuple[Tensor | None, ...] = torch.autograd.grad(loss, wanted, allow_unused=True)
    table, weight = found
    if table is None or weight is None:
        return False
    side = (conv.kernel_size[0], conv.kernel_size[1])
    patches = torch.nn.functional.unfold(given, side, stride=side)[0].T
    if len(patches) != entrance.patches:
        return False
    told = table[0, entrance.offset :].T @ patches
    return bool((told - weight.flatten(1)).norm() <= _SAME * weight.norm()) and bool(told.any())


def _image(entrance: _Entrance) -> Tensor:
    shape = (1, entrance.conv.in_channels, entrance.size, entrance.size)
    return torch.rand(shape, generator=torch.Generator().manual_seed(0))


def _traced(
    network: nn.Module, conv: nn.Conv2d, image: Tensor, layers: tuple[nn.Module, ...]
) -> tuple[Tensor, list[Tensor]]:
    """Return the patches as embedded, and what some layers read, (1, tokens, width) each."""
    device = conv.weight.device
    try:
        normalised, *read = first_inputs(network, image.to(device), (conv, *layers))
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        said, shape = first_line(error), tuple(image.shape)
        raise NotApplicable(f"the network does not read images {shape}: {said}") from error
    embedded = conv(normalised).flatten(2).mT
    if any(each.ndim != 3 for each in read):
        raise NotApplicable("the first block reads no sequence (batch, tokens, width)")
    return embedded, read


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= _CLOSE * other.abs().max())
