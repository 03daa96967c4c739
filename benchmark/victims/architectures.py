"""The networks that read images: what each is, in one table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from benchmark.errors import ProtocolError
from benchmark.victims import anatomy
from benchmark.victims.anatomy import named_tokens
from benchmark.victims.april import AprilTransformer, BlockA, BlockB
from benchmark.victims.cifar_resnet import cifar_network
from benchmark.victims.face_transformer import FaceTransformer
from benchmark.victims.huggingface_models import (
    huggingface_anatomy,
    huggingface_config,
    huggingface_head,
    huggingface_network,
    huggingface_tokens,
)
from benchmark.victims.spec import SIZES, ImageSpec
from benchmark.victims.timm_models import timm_head, timm_network

Make = Callable[[str, ImageSpec, Path | None], nn.Module]
"""A name within a family, the spec, the mirror of trained weights -> the network."""


@dataclass(frozen=True)
class ImageArchitecture:
    """An architecture, or a family of them.

    Attributes:
        network: makes it, random weights from torch's global stream.
        anatomy: where a network keeps its parts; NotApplicable where they are not known.
        head: prefix of a network's last linear layer.
        sizes: the settings that it takes.
        trained: whether there are pretrained weights.
        tokens: names of a network's class and distillation tokens, and of its positions, or None.
        config: reads what files say of a network, by name and mirror; None where its name says all.
    """

    network: Make
    anatomy: Callable[[Any, ImageSpec], anatomy.ImageAnatomy]
    head: Callable[[Any], str]
    sizes: frozenset[str] = frozenset()
    trained: bool = True
    tokens: Callable[[Any], tuple[tuple[str, ...], str | None]] = named_tokens
    config: Callable[[str, Path | None], str] | None = None


def architecture(spec: ImageSpec) -> ImageArchitecture:
    """Return what a spec's architecture is, or raise ProtocolError naming those there are."""
    found = ARCHITECTURES.get(_family(spec))
    if found is None:
        known = ", ".join(f"{key}NAME" if key.endswith("/") else key for key in ARCHITECTURES)
        raise ProtocolError(f"no victim {spec.architecture!r}; known: {known}")
    return found


def complete(spec: ImageSpec, mirror: Path | None) -> ImageSpec:
    """Return a spec that holds what files say of its network; raises as `build` does."""
    read = architecture(spec).config
    if read is None or spec.config is not None:
        return spec
    name = spec.architecture.removeprefix(_family(spec))
    return spec.model_copy(update={"config": read(name, mirror)})


def make_network(spec: ImageSpec, mirror: Path | None) -> nn.Module:
    """Make a network, random weights from torch's global stream; raises as `build` does."""
    known = architecture(spec)
    spec.refuse(*(SIZES - known.sizes))
    if spec.weights == "pretrained" and not known.trained:
        raise ProtocolError(f"{spec.architecture} has no pretrained weights; wanted random")
    return known.network(spec.architecture.removeprefix(_family(spec)), spec, mirror)


def _family(spec: ImageSpec) -> str:
    name, slash, _ = spec.architecture.partition("/")
    return name + slash


def _own(network: Callable[..., nn.Module]) -> dict[str, Any]:
    """Return what the networks written here have in common, and what makes one of them."""

    def make(_name: str, spec: ImageSpec, _mirror: Path | None) -> nn.Module:
        given = {name: value for name in SIZES if (value := getattr(spec, name)) is not None}
        try:
            return network(channels=spec.channels, size=spec.size, classes=spec.classes, **given)
        except ValueError as error:
            raise ProtocolError(f"{spec.architecture}: {error}") from error

    return {"network": make, "sizes": SIZES, "trained": False, "head": lambda _: "head"}


ARCHITECTURES: dict[str, ImageArchitecture] = {
    "april_a": ImageArchitecture(**_own(partial(AprilTransformer, BlockA)), anatomy=anatomy.april),
    "april_b": ImageArchitecture(**_own(partial(AprilTransformer, BlockB)), anatomy=anatomy.april),
    "face_transformer": ImageArchitecture(**_own(FaceTransformer), anatomy=anatomy.face),
    "cifar/": ImageArchitecture(cifar_network, anatomy.unknown, lambda _: "linear"),
    "timm/": ImageArchitecture(timm_network, anatomy.timm, timm_head, SIZES - {"heads"}),
    "huggingface/": ImageArchitecture(
        huggingface_network,
        huggingface_anatomy,
        huggingface_head,
        tokens=huggingface_tokens,
        config=huggingface_config,
    ),
}
"""By name; of a family, by what its names begin with."""
