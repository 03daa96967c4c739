"""timm's ViT, DeiT, Swin and ResNet as victims' networks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from torch import nn

from benchmark.errors import ProtocolError, first_line
from benchmark.victims.pretrained import timm_file
from benchmark.victims.spec import ImageSpec

_VIT = {"size": "img_size", "patch": "patch_size", "width": "embed_dim", "depth": "depth"}
_ARGUMENTS: dict[str, dict[str, str]] = {
    "vision_transformer": _VIT,
    "deit": _VIT,
    "swin_transformer": {key: name for key, name in _VIT.items() if key != "depth"},
    "resnet": {},  # any size, by global pooling
}
"""By timm's module: the settings its models take, and what timm calls them."""


def timm_network(name: str, spec: ImageSpec, mirror: Path | None) -> nn.Module:
    """Make a timm model that can be differentiated twice, from torch's global stream.

    Args:
        name: of the model in timm; with trained weights, its tag may follow after a dot.
        spec: the victim in full.
        mirror: see `pretrained.timm_file`.

    Raises:
        ProtocolError: no such model, one of another kind, or settings it cannot take.
        DataUnavailable: pretrained weights that are not on this machine.
    """
    import timm

    options = _options(name, spec)
    if spec.weights == "pretrained":
        options["pretrained"] = True
        options["pretrained_cfg_overlay"] = {"file": str(timm_file(name, mirror))}
    try:
        network: nn.Module = timm.create_model(name, **options)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ProtocolError(f"timm/{name}: {first_line(error)}") from error
    _check_kind(name, network)
    _check_patches(name, network, spec.size)
    for module in network.modules():
        if hasattr(module, "fused_attn"):  # the fused kernel cannot be differentiated twice
            cast("Any", module).fused_attn = False
    return network


def timm_head(network: Any) -> str:  # noqa: ANN401  (torch types no attribute)
    """Return the prefix of a timm model's last linear layer.

    Of a distilled DeiT's two heads, whose logits are averaged, it is the class token's.
    """
    classifier = network.get_classifier()
    last = classifier[0] if isinstance(classifier, tuple) else classifier
    return next(name for name, module in network.named_modules() if module is last)


def _options(name: str, spec: ImageSpec) -> dict[str, Any]:
    """Return the arguments of `timm.create_model` that a spec asks for."""
    import timm

    if not timm.is_model(name):
        raise ProtocolError(f"timm has no model {name!r}; wanted a name of timm.list_models()")
    in_modules = timm.models.is_model_in_modules
    family = next((each for each in _ARGUMENTS if in_modules(name, [each])), None)
    if family is None:
        raise ProtocolError(f"timm/{name} is no ViT, DeiT, Swin or ResNet; wanted one of those")
    taken = _ARGUMENTS[family]
    spec.refuse(*({"patch", "width", "depth"} - taken.keys()))
    options: dict[str, Any] = {"num_classes": spec.classes, "in_chans": spec.channels}
    for key, argument in taken.items():
        if (value := getattr(spec, key)) is not None:
            options[argument] = value
    if family == "resnet":  # timm starts the last norm of each branch at 0, torch at 1
        options["zero_init_last"] = spec.initialisation.layers == "timm"
    return options


def _check_kind(name: str, network: nn.Module) -> None:
    from timm.models.resnet import ResNet
    from timm.models.swin_transformer import SwinTransformer
    from timm.models.vision_transformer import VisionTransformer

    if not isinstance(network, VisionTransformer | SwinTransformer | ResNet):
        raise ProtocolError(
            f"timm/{name} is a {type(network).__name__}; wanted a plain ViT, DeiT, Swin or ResNet"
        )


def _check_patches(name: str, network: nn.Module, size: int) -> None:
    embedding: Any = getattr(network, "patch_embed", None)
    if embedding is not None and size % embedding.patch_size[0]:
        patch = embedding.patch_size[0]
        raise ProtocolError(f"timm/{name}: {patch} px patches must tile {size} px")
