"""Where a victim keeps its parts, so that no attack knows a model by name.

Parts are named by parameter; a tensor is then `update[name]` or `weights[name]`. Where q, k, v
share one matrix, each is a slice of its rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn

from benchmark.errors import NotApplicable
from benchmark.victims.april import AprilTransformer, BlockB
from benchmark.victims.cifar_resnet import CifarResNet
from benchmark.victims.face_transformer import FaceTransformer
from benchmark.victims.language.victim import LanguageVictim
from benchmark.victims.parts import Part
from benchmark.victims.victim import Victim


@dataclass(frozen=True)
class Block:
    """One transformer block, its parts as names of parameters; a missing part is None."""

    attention_norm: str | None
    """Prefix of the norm before the attention: `.weight` and `.bias` follow."""
    query: Part
    key: Part
    value: Part
    attention_projection: str
    mlp_norm: str
    mlp: tuple[str, str]
    residual: bool
    """Whether the attention's input is added to its output."""


@dataclass(frozen=True)
class Anatomy:
    """The parts of a vision transformer."""

    channels: int
    size: int
    patch: int
    """From one patch to the next in pixels, and so its side where patches do not overlap.

    A flattened patch is (channel, row, column).
    """
    width: int
    heads: int
    patch_embedding: str
    """Prefix of the patch embedding; its weight flattens to (width, channel * side * side),
    where side is `patch + overlap`."""
    position: str
    """Name of the positions, (1, tokens, width)."""
    position_trained: bool
    prefix_tokens: int
    """Class and distillation tokens before the patches."""
    position_offset: int
    """Row of `position` at which the patches begin."""
    prefix: tuple[str, ...]
    """Names of the class and distillation tokens."""
    blocks: tuple[Block, ...]
    final_norm: str | None
    head: str
    overlap: int = 0
    """Pixels that a patch shares with the next in its row or column."""

    @property
    def patches(self) -> int:
        """Number of patches of an image."""
        return (self.size // self.patch) ** 2

    @property
    def tokens(self) -> int:
        """Number of tokens of an image, prefix tokens included."""
        return self.patches + self.prefix_tokens


def anatomy(model: nn.Module) -> Anatomy:
    """Return where a victim keeps its parts.

    Raises:
        NotApplicable: the model is none whose parts are known.
    """
    if isinstance(model, Victim):
        network = model.network
        if isinstance(network, AprilTransformer):
            return _april(network, model)
        if isinstance(network, FaceTransformer):
            parts = _april(network, model)
            overlap = network.patch - network.stride
            return replace(parts, patch=network.stride, overlap=overlap, final_norm="norm")
        from timm.models.vision_transformer import VisionTransformer

        if isinstance(network, VisionTransformer):
            return _timm(network, model)
    raise NotApplicable(f"the parts of a {type(model).__name__} are not known")


def head(model: nn.Module) -> str:
    """Return the prefix of a victim's last linear layer: `.weight` (classes, width) and `.bias`.

    Of a distilled DeiT's two heads, whose logits are averaged, it is the class token's.

    Raises:
        NotApplicable: the model is no victim.
    """
    if not isinstance(model, Victim):
        raise NotApplicable(f"the head of a {type(model).__name__} is not known")
    network: Any = model.network
    if isinstance(network, CifarResNet):
        return "linear"
    if isinstance(network, AprilTransformer | FaceTransformer):
        return "head"
    classifier = network.get_classifier()
    last = classifier[0] if isinstance(classifier, tuple) else classifier
    return next(name for name, module in network.named_modules() if module is last)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Return a victim's parameters and fixed buffers by the names that `anatomy` uses."""
    assert isinstance(model, Victim | LanguageVictim)
    named = {**dict(model.network.named_parameters()), **dict(model.network.named_buffers())}
    return {name: tensor.detach() for name, tensor in named.items()}


def _fused(name: str, width: int) -> tuple[Part, Part, Part]:
    q, k, v = (Part(name, slice(i * width, (i + 1) * width)) for i in range(3))
    return q, k, v


def _april(network: Any, model: Victim) -> Anatomy:  # noqa: ANN401  (torch types no attribute)
    width = network.head.in_features
    blocks = []
    for i, block in enumerate(network.blocks):
        here, pre_norm = f"blocks.{i}", isinstance(block, BlockB)
        q, k, v = _fused(f"{here}.attn.qkv.weight", width)
        blocks.append(
            Block(
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
    return Anatomy(
        channels=model.spec.channels,
        size=model.spec.size,
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


def _timm(network: Any, model: Victim) -> Anatomy:  # noqa: ANN401
    width: int = network.embed_dim
    prefix = tuple(name for name in ("cls_token", "dist_token", "reg_token") if _has(network, name))
    unknown = not isinstance(network.norm_pre, nn.Identity) or not _has(network, "pos_embed")
    if unknown or any(not hasattr(block.attn, "qkv") for block in network.blocks):
        raise NotApplicable(f"the parts of {model.spec.architecture} are not known")
    blocks = []
    for i in range(len(network.blocks)):
        q, k, v = _fused(f"blocks.{i}.attn.qkv.weight", width)
        blocks.append(
            Block(
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
    return Anatomy(
        channels=model.spec.channels,
        size=model.spec.size,
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


def _has(network: nn.Module, name: str) -> bool:
    return getattr(network, name, None) is not None
