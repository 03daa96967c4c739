"""A vision transformer's parts as modules and shapes tell them; none is known by name."""

from __future__ import annotations

from typing import Any

from torch import nn

from benchmark.errors import NotApplicable
from benchmark.victims.anatomy import ImageBlock
from benchmark.victims.parameters import ParameterSlice
from benchmark.victims.timm_models import timm_head

_HEADS = ("num_heads", "num_attention_heads", "n_head")


def projection(network: nn.Module) -> tuple[str, nn.Conv2d]:
    """Return the convolution that cuts an image into patches, with its name."""
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
    return name, first


def positions(network: nn.Module, width: int) -> tuple[str, tuple[str, ...], bool]:
    """Return the table's name, those of the tokens before the patches, and whether it is fixed."""
    tensors = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    tokens = {n: t for n, t in tensors.items() if t.ndim == 3 and len(t) == 1}
    tokens = {n: t for n, t in tokens.items() if t.shape[2] == width}
    tables = [name for name in tokens if "pos" in name and tokens[name].shape[1] > 1]
    if len(tables) != 1:
        raise NotApplicable(
            f"a {type(network).__name__} has {_kind(network, len(tables))}; wanted one table "
            "(1, tokens, width) that is added to the patches"
        )
    others = tuple(n for n in tokens if n != tables[0] and "mask" not in n)
    return tables[0], others, tables[0] not in dict(network.named_parameters())


def _kind(network: nn.Module, tables: int) -> str:
    """Return in words what positions a network has in place of one table."""
    if tables:
        return f"{tables} tables of positions"
    held = [name for name, _ in (*network.named_parameters(), *network.named_buffers())]
    names = " ".join([*held, *(name for name, _ in network.named_modules())])
    for word, sign in (("relative", "relative_pos"), ("relative", "rel_pos"), ("rotary", "rope")):
        if sign in names:
            return f"{word} positions, inside its attention"
    return "no table of positions"


def blocks_of(network: nn.Module, width: int) -> tuple[ImageBlock, ...]:
    """Return the parts of each block, from the first."""
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


def block_prefix(block: ImageBlock) -> str:
    """Return what the names of a block's parts have in common."""
    assert block.attention_norm is not None
    one, other = block.attention_norm.split("."), block.mlp[1].split(".")
    shared = [a for a, b in zip(one, other, strict=False) if a == b]
    return ".".join(shared)


def heads_of(network: nn.Module, block: str) -> int:
    """Return how many heads the attention of a block has."""
    holders: list[Any] = [*network.get_submodule(block).modules()]
    holders.append(getattr(network, "config", None))
    for holder in holders:
        for name in _HEADS:
            if isinstance(heads := getattr(holder, name, None), int):
                return heads
    raise NotApplicable(f"the attention in {block} does not say how many heads it has")


def _outside(name: str, blocks: tuple[ImageBlock, ...]) -> bool:
    return not any(name.startswith(f"{block_prefix(block)}.") for block in blocks)


def final_norm(network: nn.Module, blocks: tuple[ImageBlock, ...]) -> str | None:
    """Return the first norm behind the last block, in the order of the modules."""
    modules = list(network.named_modules())
    last = [name for name, _ in modules].index(block_prefix(blocks[-1]))
    behind = [name for name, m in modules[last:] if isinstance(m, nn.LayerNorm)]
    return next((name for name in behind if _outside(name, blocks)), None)


def head_of(network: nn.Module, blocks: tuple[ImageBlock, ...]) -> str:
    """Return the prefix of the last linear layer, which makes the logits."""
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
