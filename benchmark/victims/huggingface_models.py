"""Image classifiers of the library `transformers` as victims' networks.

Nobody wrote down where each of them keeps its parts: they are found (`found/`) on the fresh
network, before a defense adds to it or a server moves its weights, and go along with its copies.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.errors import BenchmarkError, NotApplicable, ProtocolError, first_line
from benchmark.victims.anatomy import ImageAnatomy
from benchmark.victims.found.parts import head_of
from benchmark.victims.found.structure import image_anatomy
from benchmark.victims.inputs import layer_inputs
from benchmark.victims.language.pretrained import model_folder
from benchmark.victims.spec import ImageSpec, Initialisation

_CONFIG = "config.json"


@dataclass(frozen=True)
class _Parts:
    """What was found of a network; a string is the reason why nothing was."""

    anatomy: ImageAnatomy | str
    head: str | None
    """Prefix of the linear layer that makes the logits; None where no single one does."""


def huggingface_config(name: str, mirror: Path | None) -> str:
    """Return a model's `config.json`, from the mirror's `weights/huggingface/` or the hub's cache.

    Raises:
        ProtocolError: no name of a repository.
        DataUnavailable: with the command that would fetch it.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ProtocolError(f"huggingface/{name}: {first_line(error)}") from error
    folder = model_folder(f"huggingface/{name}", name, mirror, (_CONFIG,))
    return (folder / _CONFIG).read_text(encoding="utf-8")


def huggingface_network(name: str, spec: ImageSpec, mirror: Path | None) -> nn.Module:
    """Make an image classifier that can be differentiated twice, and answers with its logits.

    Random weights start as the library starts them, from torch's global stream.

    Args:
        name: of the repository, `owner/name`.
        spec: the victim in full.
        mirror: the files are in its `weights/huggingface/NAME/`, else in the hub's cache.

    Raises:
        ProtocolError: no image classifier of the library, or one that does not fit the spec.
        DataUnavailable: files that are not on this machine.
    """
    if spec.initialisation.layers != Initialisation().layers:
        raise ProtocolError(f"{spec.architecture} starts as transformers starts it, not as timm")
    stated = spec.config or huggingface_config(name, mirror)
    trained = spec.weights == "pretrained"
    folder = model_folder(f"huggingface/{name}", name, mirror) if trained else None
    try:
        network = _network(stated, spec, folder)
        network.eval().requires_grad_(True).register_forward_hook(logits_alone)
        if not any(each.is_meta for each in network.parameters()):
            network.found_parts = _found(network, spec)
    except BenchmarkError:
        raise
    except Exception as error:  # a config may state anything, and the library says so as it likes
        raise ProtocolError(f"{spec.architecture}: {first_line(error)}") from error
    return network


def logits_alone(_module: nn.Module, _given: object, answer: Any) -> Tensor:  # noqa: ANN401
    """Return the logits of what a network answers, which `transformers` wraps; a forward hook."""
    return getattr(answer, "logits", answer)


def huggingface_anatomy(network: Any, spec: ImageSpec) -> ImageAnatomy:  # noqa: ANN401
    """Return where it keeps its parts; NotApplicable where they are not understood."""
    parts: ImageAnatomy | str = network.found_parts.anatomy
    if isinstance(parts, str):
        raise NotApplicable(f"{spec.architecture}: {parts}")
    trained = isinstance(attrgetter(parts.position)(network), nn.Parameter)  # fixed since, or not
    return replace(parts, position_trained=trained)


def huggingface_head(network: Any) -> str:  # noqa: ANN401
    """Return the prefix of the last linear layer; NotApplicable where it alone is no head."""
    head: str | None = network.found_parts.head
    if head is None:
        raise NotApplicable(f"the logits of a {type(network).__name__} are no linear layer's")
    return head


def huggingface_tokens(network: Any) -> tuple[tuple[str, ...], str | None]:  # noqa: ANN401
    """Return the names of tokens before the patches, and of the positions, where it has any."""
    parts: ImageAnatomy | str = network.found_parts.anatomy
    return ((), None) if isinstance(parts, str) else (parts.prefix, parts.position)


def _network(stated: str, spec: ImageSpec, folder: Path | None) -> Any:  # noqa: ANN401
    """Make the network that a config states, of a spec's shape; random where no folder is given."""
    import transformers
    from transformers.utils import logging

    config, classes = _config(json.loads(stated), spec)
    kind: Any = transformers.AutoModelForImageClassification
    options: dict[str, Any] = {
        "attn_implementation": "eager",  # the fused kernels cannot be differentiated twice
        "trust_remote_code": False,
    }
    if folder is None:
        return kind.from_config(config, **options).float()  # whatever the config says
    if classes != spec.classes:
        raise ProtocolError(
            f"{spec.architecture}: pretrained weights tell {classes} classes; the data have "
            f"{spec.classes}"
        )
    logger: Any = logging
    logger.disable_progress_bar()
    logger.set_verbosity_error()  # what does not fit is said below, in a line
    network, told = kind.from_pretrained(
        folder,
        config=config,
        local_files_only=True,
        use_safetensors=True,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        **options,
    )
    for key, here, wanted in sorted(told["mismatched_keys"]):
        raise ProtocolError(
            f"{spec.architecture}: pretrained weights have {key} {tuple(here)}; images of "
            f"{spec.channels} x {spec.size} px want {tuple(wanted)}"
        )
    for key in sorted(told["missing_keys"]):
        raise ProtocolError(f"{spec.architecture}: pretrained weights hold no {key}; wanted all")
    return network.float()


def _config(stated: dict[str, Any], spec: ImageSpec) -> tuple[Any, int]:
    """Return a config with the spec's shape, and how many classes it was stated with."""
    from transformers import CONFIG_MAPPING

    model_type = str(stated.get("model_type"))
    if model_type not in CONFIG_MAPPING:
        raise ProtocolError(
            f"{spec.architecture}: config.json is of model_type {model_type!r}, which transformers "
            "does not know; code of a repository's own is not run"
        )
    config: Any = CONFIG_MAPPING[model_type].from_dict(stated)
    config.architectures = config.architectures or []  # where None, AutoModel fails
    classes, config.num_labels = int(config.num_labels), spec.classes
    vision = getattr(config, "vision_config", config)  # of models of images and text
    vision.image_size, vision.num_channels = spec.size, spec.channels
    patch = getattr(vision, "patch_size", None)
    if isinstance(patch, int) and spec.size % patch:
        raise ProtocolError(f"{spec.architecture}: {patch} px patches must tile {spec.size} px")
    return config, classes


def _found(network: nn.Module, spec: ImageSpec) -> _Parts:
    """Find a network's parts, and hold its head against what it answers."""
    try:
        anatomy: ImageAnatomy | str = image_anatomy(network, spec.size)
    except NotApplicable as reason:
        anatomy = str(reason)
    shape = (1, spec.channels, spec.size, spec.size)
    images = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    try:
        head = anatomy.head if isinstance(anatomy, ImageAnatomy) else head_of(network, ())
    except NotApplicable:
        head = None
    last = [] if head is None else [network.get_submodule(head)]
    with torch.no_grad():
        with layer_inputs(*last) as read:
            logits = network(images)
        made = [layer(read[-1]) for layer in last if read]
    if not isinstance(logits, Tensor) or logits.shape != (1, spec.classes):
        raise ProtocolError(f"{spec.architecture} does not answer with logits (1, {spec.classes})")
    alone = any(each.numel() == logits.numel() and torch.allclose(each, logits) for each in made)
    return _Parts(anatomy, head if alone else None)
