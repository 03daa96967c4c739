"""A vision transformer's anatomy, found by its structure: modules, shapes, one traced forward.

No family is known by name. What is found in the modules is held against what a forward pass
computes: the first block reads patches plus positions, its attention a layer norm of that. A
network that computes something else, by rotary positions for one, is declined with that reason.
"""

from __future__ import annotations

from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.errors import NotApplicable
from benchmark.victims import ImageAnatomy, ImageBlock, ParameterSlice
from benchmark.victims.timm_models import timm_head
from gradleak.tracing import first_inputs

_CLOSE = 1e-4  # of the largest value; float32 sums in another order differ by 1e-6
_HEADS = ("num_heads", "num_attention_heads", "n_head")


def image_anatomy(network: nn.Module, size: int | None) -> ImageAnatomy:
    """Return where a vision transformer keeps its parts.

    Args:
        network: reads (batch, channel, size, size).
        size: side of the image in pixels; None is what its positions are made for.

    Raises:
        NotApplicable: it is not understood, with what was wanted in one line.
    """
    projection, conv = _projection(network)
    width, patch = conv.out_channels, int(conv.kernel_size[0])
    position, prefix, fixed = _positions(network, width)
    named = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    rows, extra = named[position].shape[1], sum(named[name].shape[1] for name in prefix)
    size = size or patch * isqrt(rows if isqrt(rows) ** 2 == rows else rows - extra)
    blocks = _blocks(network, width)
    image = torch.rand(1, conv.in_channels, size, size, generator=torch.Generator().manual_seed(0))
    first = blocks[0]
    reader = network.get_submodule(
        first.query.name.removesuffix(".in_proj_weight").removesuffix(".weight")
    )
    layers = (network.get_submodule(_block_prefix(first)), reader)
    embedded, (tokens, read) = _traced(network, conv, image, layers)
    patches = embedded.shape[1]
    prefix_tokens, offset = tokens.shape[1] - patches, rows - patches
    if prefix_tokens < 0 or offset not in (0, prefix_tokens):
        raise NotApplicable(
            f"the first block reads {tokens.shape[1]} tokens of {patches} patches and {rows} "
            "positions; wanted a token and a position a patch"
        )
    expected = embedded + named[position][:, offset:].to(embedded)
    if not _close(tokens[:, prefix_tokens:], expected):
        raise NotApplicable(
            "the first block does not read patches plus positions; a norm, a scale or positions "
            "of another kind stand between"
        )
    norm = first.attention_norm
    normed = None if norm is None else network.get_submodule(norm)(tokens)
    if normed is None or not _close(read, normed):
        raise NotApplicable("the first attention does not read a layer norm of its block's input")
    return ImageAnatomy(
        channels=conv.in_channels,
        size=size,
        patch=patch,
        width=width,
        heads=_heads(network, _block_prefix(first)),
        patch_embedding=projection,
        position=position,
        position_trained=not fixed,
        prefix_tokens=prefix_tokens,
        position_offset=offset,
        prefix=prefix if prefix_tokens else (),
        blocks=blocks,
        final_norm=_final_norm(network, blocks),
        head=_head(network, blocks),
    )


def _projection(network: nn.Module) -> tuple[str, nn.Conv2d]:
    convolutions = [(n, m) for n, m in network.named_modules() if isinstance(m, nn.Conv2d)]
    if not convolutions:
        raise NotApplicable(
            f"a {type(network).__name__} has no convolution that cuts an image into patches"
        )
    name, first = convolutions[0]
    if first.kernel_size != first.stride or len(set(first.kernel_size)) != 1:
        raise NotApplicable(
            f"a {type(network).__name__} begins with a convolution of {first.kernel_size[0]} px "
            f"every {first.stride[0]} px; wanted square patches side by side"
        )
    if first.bias is None:
        raise NotApplicable(f"the patch projection {name} has no bias; wanted one")
    return name, first


def _positions(network: nn.Module, width: int) -> tuple[str, tuple[str, ...], bool]:
    """Return the table's name, those of the tokens before the patches, and whether it is fixed."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    tokens = {n: t for n, t in tensors.items() if t.ndim == 3 and len(t) == 1}
    tokens = {n: t for n, t in tokens.items() if t.shape[2] == width}
    tables = [name for name in tokens if "pos" in name and tokens[name].shape[1] > 1]
    if len(tables) != 1:
        raise NotApplicable(
            f"a {type(network).__name__} has {len(tables)} tables of positions (1, tokens, width); "
            "wanted one: relative and rotary positions are not known"
        )
    others = tuple(n for n in tokens if n != tables[0] and "mask" not in n)
    return tables[0], others, tables[0] not in dict(network.named_parameters())


def _blocks(network: nn.Module, width: int) -> tuple[ImageBlock, ...]:
    for name, module in network.named_modules():
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module):
            found = [
                _block(child, f"{name}.{key}", width) for key, child in module.named_children()
            ]
            blocks = tuple(block for block in found if block is not None)
            if len(blocks) == len(found):
                return blocks
    raise NotApplicable(
        f"a {type(network).__name__} has no list of blocks with queries, keys and values "
        f"({width}, {width}), two norms and an MLP"
    )


def _block(module: nn.Module, here: str, width: int) -> ImageBlock | None:
    """Return a block's parts, or None where it is none."""
    inner = [(f"{here}.{name}", part) for name, part in module.named_modules()]
    linear = [(name, part) for name, part in inner if isinstance(part, nn.Linear)]
    norms = [n for n, m in inner if isinstance(m, nn.LayerNorm) and m.normalized_shape == (width,)]
    attention = _attention(inner, linear, width)
    if attention is None or len(norms) < 2:
        return None
    qkv, used = attention
    rest = [(name, part) for name, part in linear if name not in used]
    if len(rest) < 3 or rest[0][1].out_features != width:
        return None
    (projection, _), *_, (first, _), (second, last) = rest
    if last.out_features != width:
        return None
    query, key, value = qkv
    return ImageBlock(norms[0], query, key, value, projection, norms[1], (first, second), True)


Three = tuple[ParameterSlice, ParameterSlice, ParameterSlice]


def _attention(
    inner: list[tuple[str, nn.Module]], linear: list[tuple[str, nn.Linear]], width: int
) -> tuple[Three, set[str]] | None:
    """Return q, k and v of a block, and the linear layers that hold them."""
    for name, part in inner:
        if isinstance(part, nn.MultiheadAttention) and part.in_proj_weight is not None:
            return _fused(f"{name}.in_proj_weight", width), set()
    for name, part in linear:
        if part.in_features == width and part.out_features == 3 * width:
            return _fused(f"{name}.weight", width), {name}
    square = [name for name, part in linear if part.in_features == part.out_features == width]
    by_letter = {name.rpartition(".")[2][0]: name for name in reversed(square)}
    if not {"q", "k", "v"} <= by_letter.keys():
        return None
    q, k, v = (ParameterSlice(f"{by_letter[letter]}.weight") for letter in "qkv")
    return (q, k, v), {by_letter[letter] for letter in "qkv"}


def _fused(name: str, width: int) -> Three:
    q, k, v = (ParameterSlice(name, slice(i * width, (i + 1) * width)) for i in range(3))
    return q, k, v


def _traced(
    network: nn.Module, conv: nn.Conv2d, image: Tensor, layers: tuple[nn.Module, ...]
) -> tuple[Tensor, list[Tensor]]:
    """Return the patches as embedded, and what some layers read, (1, tokens, width) each."""
    device = conv.weight.device
    try:
        normalised, *read = first_inputs(network, image.to(device), (conv, *layers))
    except (RuntimeError, ValueError, AssertionError, TypeError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        shape = tuple(image.shape)
        raise NotApplicable(f"the network does not read images {shape}: {said[0]}") from error
    embedded = conv(normalised).flatten(2).mT
    if any(each.ndim != 3 for each in read):
        raise NotApplicable("the first block reads no sequence (batch, tokens, width)")
    return embedded, read


def _block_prefix(block: ImageBlock) -> str:
    """Return what the names of a block's parts have in common."""
    assert block.attention_norm is not None
    one, other = block.attention_norm.split("."), block.mlp[1].split(".")
    shared = [a for a, b in zip(one, other, strict=False) if a == b]
    return ".".join(shared)


def _heads(network: nn.Module, block: str) -> int:
    holders: list[Any] = [*network.get_submodule(block).modules()]
    holders.append(getattr(network, "config", None))
    for holder in holders:
        for name in _HEADS:
            if isinstance(heads := getattr(holder, name, None), int):
                return heads
    raise NotApplicable(f"the attention in {block} does not say how many heads it has")


def _outside(name: str, blocks: tuple[ImageBlock, ...]) -> bool:
    return not any(name.startswith(f"{_block_prefix(block)}.") for block in blocks)


def _final_norm(network: nn.Module, blocks: tuple[ImageBlock, ...]) -> str | None:
    """Return the first norm behind the last block, in the order of the modules."""
    modules = list(network.named_modules())
    last = [name for name, _ in modules].index(_block_prefix(blocks[-1]))
    behind = [name for name, m in modules[last:] if isinstance(m, nn.LayerNorm)]
    return next((name for name in behind if _outside(name, blocks)), None)


def _head(network: nn.Module, blocks: tuple[ImageBlock, ...]) -> str:
    if hasattr(network, "get_classifier"):
        name = timm_head(network)
        if not isinstance(network.get_submodule(name), nn.Linear):
            raise NotApplicable(
                f"a {type(network).__name__} has no linear head; wanted num_classes"
            )
        return name
    named = [n for n, m in network.named_modules() if isinstance(m, nn.Linear)]
    outside = [name for name in named if _outside(name, blocks)]
    if not outside:
        raise NotApplicable(f"a {type(network).__name__} has no linear head behind its blocks")
    return outside[-1]


def _close(one: Tensor, other: Tensor) -> bool:
    if one.shape != other.shape:
        return False
    return bool((one - other).abs().max() <= _CLOSE * other.abs().max())
