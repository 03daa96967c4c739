"""Where a victim of images keeps its parts, so that no attack knows a model by name.

Parts are named by parameter; a tensor is then `update[name]` or `weights[name]`. Where q, k, v
share one matrix, each is a slice of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from benchmark.contract import Anatomy
from benchmark.errors import NotApplicable
from benchmark.victims.april import BlockB
from benchmark.victims.parameters import ParameterSlice
from benchmark.victims.spec import ImageSpec

Network = Any
"""A module whose attributes torch does not type."""


@dataclass(frozen=True)
class ImageBlock:
    """One transformer block, its parts as names of parameters; a missing part is None."""

    attention_norm: str | None
    """Prefix of the norm before the attention: `.weight` and `.bias` follow."""
    query: ParameterSlice
    key: ParameterSlice
    value: ParameterSlice
    attention_projection: str
    mlp_norm: str
    mlp: tuple[str, str]
    residual: bool
    """Whether the attention's input is added to its output."""


@dataclass(frozen=True, kw_only=True)
class ImageAnatomy(Anatomy):
    """The parts of a vision transformer; its positions are (1, tokens, width)."""

    channels: int
    size: int
    patch: int
    """From one patch to the next in pixels, and so its side where patches do not overlap.

    A flattened patch is (channel, row, column).
    """
    patch_embedding: str
    """Prefix of the patch embedding; its weight flattens to (width, channel * side * side),
    where side is `patch + overlap`."""
    prefix_tokens: int
    """Class and distillation tokens before the patches."""
    position_offset: int
    """Row of `position` at which the patches begin."""
    prefix: tuple[str, ...]
    """Names of the class and distillation tokens."""
    blocks: tuple[ImageBlock, ...]
    head: str
    overlap: int = 0
    """Pixels that a patch shares with the next in its row or column."""
    unknown_position: str | None = None
    """Name of the position (1, 1, width) that masked patches share, where a defense has one."""

    @property
    def patches(self) -> int:
        """Number of patches of an image."""
        return (self.size // self.patch) ** 2

    @property
    def tokens(self) -> int:
        """Number of tokens of an image, prefix tokens included."""
        return self.patches + self.prefix_tokens


def april(network: Network, spec: ImageSpec) -> ImageAnatomy:
    """Return where a network of the APRIL paper keeps its parts."""
    width = network.head.in_features
    blocks = []
    for i, block in enumerate(network.blocks):
        here, pre_norm = f"blocks.{i}", isinstance(block, BlockB)
        q, k, v = _fused(f"{here}.attn.qkv.weight", width)
        blocks.append(
            ImageBlock(
                attention_norm=f"{here}.norm1" if pre_norm else None,
                query=q,
                key=k,
                value=v,
                attention_projection=f"{here}.attn.proj",
                mlp_norm=f"{here}.norm2" if pre_norm else f"{here}.norm",
                mlp=(f"{here}.mlp.fc1", f"{here}.mlp.fc2"),
                residual=pre_norm,
            )
        )
    return ImageAnatomy(
        channels=spec.channels,
        size=spec.size,
        patch=network.patch,
        width=width,
        heads=network.blocks[0].attn.num_heads,
        patch_embedding="patch_embed",
        position="pos_embed",
        position_trained=isinstance(network.pos_embed, nn.Parameter),
        prefix_tokens=1,
        position_offset=1,
        prefix=("cls_token",),
        blocks=tuple(blocks),
        final_norm=None,
        head="head",
    )


def face(network: Network, spec: ImageSpec) -> ImageAnatomy:
    """Return where a Face Transformer keeps its parts."""
    overlap = network.patch - network.stride
    parts = april(network, spec)
    return replace(parts, patch=network.stride, overlap=overlap, final_norm="norm")


def timm(network: Network, spec: ImageSpec) -> ImageAnatomy:
    """Return where a ViT or DeiT of timm keeps its parts."""
    from timm.models.vision_transformer import VisionTransformer

    is_vit = isinstance(network, VisionTransformer)
    if not is_vit:
        return unknown(network, spec)
    width: int = network.embed_dim
    prefix = tuple(name for name in ("cls_token", "dist_token", "reg_token") if _has(network, name))
    strange = not isinstance(network.norm_pre, nn.Identity) or not _has(network, "pos_embed")
    if strange or any(not hasattr(block.attn, "qkv") for block in network.blocks):
        raise NotApplicable(f"the parts of {spec.architecture} are not known")
    blocks = []
    for i in range(len(network.blocks)):
        q, k, v = _fused(f"blocks.{i}.attn.qkv.weight", width)
        blocks.append(
            ImageBlock(
                attention_norm=f"blocks.{i}.norm1",
                query=q,
                key=k,
                value=v,
                attention_projection=f"blocks.{i}.attn.proj",
                mlp_norm=f"blocks.{i}.norm2",
                mlp=(f"blocks.{i}.mlp.fc1", f"blocks.{i}.mlp.fc2"),
                residual=True,
            )
        )
    return ImageAnatomy(
        channels=spec.channels,
        size=spec.size,
        patch=network.patch_embed.patch_size[0],
        width=width,
        heads=network.blocks[0].attn.num_heads,
        patch_embedding="patch_embed.proj",
        position="pos_embed",
        position_trained=isinstance(network.pos_embed, nn.Parameter),
        prefix_tokens=network.num_prefix_tokens,
        position_offset=0 if network.no_embed_class else network.num_prefix_tokens,
        prefix=prefix,
        blocks=tuple(blocks),
        final_norm=None if isinstance(network.norm, nn.Identity) else "norm",
        head="head",
    )


def named_tokens(network: Network) -> tuple[tuple[str, ...], str | None]:
    """Return the names of class and distillation tokens and of positions, as timm names them."""
    prefix = tuple(name for name in ("cls_token", "dist_token") if _has(network, name))
    return prefix, "pos_embed" if _has(network, "pos_embed") else None


def unknown(network: Network, spec: ImageSpec) -> ImageAnatomy:
    """Raise NotApplicable: these are no transformers of images."""
    raise NotApplicable(f"a {spec.architecture} is no vision transformer whose parts are known")


def _fused(name: str, width: int) -> tuple[ParameterSlice, ParameterSlice, ParameterSlice]:
    q, k, v = (ParameterSlice(name, slice(i * width, (i + 1) * width)) for i in range(3))
    return q, k, v


def _has(network: nn.Module, name: str) -> bool:
    return getattr(network, name, None) is not None
