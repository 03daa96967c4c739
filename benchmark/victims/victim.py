"""A victim of images: a network, its normalisation, and the spec that makes it again."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmark.contract import Batch, ImageBatch, Victim
from benchmark.errors import BenchmarkError, DataUnavailable, NotApplicable, ProtocolError
from benchmark.seeds import global_stream
from benchmark.victims.anatomy import ImageAnatomy, anatomy, head
from benchmark.victims.april import AprilTransformer, BlockA, BlockB
from benchmark.victims.cifar_resnet import cifar_network
from benchmark.victims.face_transformer import FaceTransformer
from benchmark.victims.positions import fix_positions
from benchmark.victims.spec import ImageSpec
from benchmark.victims.timm_models import timm_network

_SIZES = frozenset({"patch", "width", "depth"})
OWN: dict[str, tuple[Callable[..., nn.Module], frozenset[str]]] = {
    "april_a": (partial(AprilTransformer, BlockA), _SIZES),
    "april_b": (partial(AprilTransformer, BlockB), _SIZES),
    "face_transformer": (FaceTransformer, _SIZES | {"heads"}),
}
"""The networks written here, and the settings that each takes."""


class ImageVictim(Victim):
    """A victim that reads images float32 in [0, 1], (batch, channel, size, size).

    It normalises them itself.
    """

    track: ClassVar = "vision"
    spec: ImageSpec

    def __init__(self, network: nn.Module, spec: ImageSpec) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.network, self.spec = network, spec
        self.register_buffer("mean", torch.tensor(spec.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(spec.std).view(-1, 1, 1), persistent=False)

    @classmethod
    def make(
        cls, spec: ImageSpec, generator: torch.Generator, mirror: Path | None = None
    ) -> ImageVictim:
        """Make a victim; see `build`. A checkpoint's place is no part of its spec."""
        with global_stream(generator):
            network = _network(spec, mirror)
            _initialise_tokens(network, spec)
        if spec.checkpoint is not None:
            _load_checkpoint(network, spec.checkpoint, mirror)
            # so that a sandbox needs no file, and no other width is asked of these weights
            spec = spec.model_copy(update={"checkpoint": None, "weights": "pretrained"})
        _fix_positions(network, spec)
        return cls(network, spec).eval()

    @classmethod
    def of(cls, model: nn.Module) -> ImageVictim:
        """Return a model as what it is; NotApplicable where it reads no images."""
        if not isinstance(model, cls):
            raise NotApplicable("the parts of a LanguageVictim are not known")  # as recorded
        return model

    @property
    def anatomy(self) -> ImageAnatomy:
        """Where it keeps its parts; NotApplicable where they are not known."""
        return anatomy(self.network, self.spec)

    @property
    def head(self) -> str:
        """Prefix of the last linear layer: `.weight` (classes, width) and `.bias`."""
        return head(self.network)

    def forward(self, images: Tensor) -> Tensor:
        return self.network((images - self.mean) / self.std)

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross entropy of a batch in nats."""
        assert isinstance(batch, ImageBatch)
        logits = self(batch.images.to(self.device))
        return functional.cross_entropy(logits, batch.labels.to(self.device))

    def with_fixed_positions(self, encoding: Literal["sincos_1d", "sincos_2d"]) -> ImageVictim:
        """Return a copy whose positions are fixed sine-cosine buffers."""
        twin = copy.deepcopy(self)
        twin.spec = self.spec.model_copy(update={"position": encoding})
        _fix_positions(twin.network, twin.spec)
        return twin

    def with_width(self, width: int, generator: torch.Generator) -> ImageVictim:
        """Return a fresh victim of another width, with weights drawn from the generator.

        Raises:
            NotApplicable: these weights are trained.
        """
        if self.spec.weights == "pretrained":
            raise NotApplicable(f"{self.spec.architecture}: trained weights have one width")
        return self.make(self.spec.model_copy(update={"width": width}), generator)


def _network(spec: ImageSpec, mirror: Path | None) -> nn.Module:
    if spec.architecture in OWN:
        return _own(spec)
    spec.refuse("heads")
    family, _, name = spec.architecture.partition("/")
    if family == "cifar":
        return cifar_network(name, spec, mirror)
    if family == "timm":
        return timm_network(name, spec, mirror)
    known = ", ".join([*OWN, "cifar/NAME", "timm/NAME"])
    raise ProtocolError(f"no victim {spec.architecture!r}; known: {known}")


def _own(spec: ImageSpec) -> nn.Module:
    """Make a network of ours, random weights from torch's global stream."""
    make, sizes = OWN[spec.architecture]
    spec.refuse(*({"patch", "width", "depth", "heads"} - sizes))
    if spec.weights == "pretrained":
        raise ProtocolError(f"{spec.architecture} has no pretrained weights; wanted random")
    given = {name: getattr(spec, name) for name in sizes if getattr(spec, name) is not None}
    try:
        return make(channels=spec.channels, size=spec.size, classes=spec.classes, **given)
    except ValueError as error:
        raise ProtocolError(f"{spec.architecture}: {error}") from error


def _load_checkpoint(network: nn.Module, name: str, mirror: Path | None) -> None:
    """Replace every tensor of a network by a checkpoint's.

    Raises:
        DataUnavailable: no such file in the mirror.
        BenchmarkError: as `replace_weights`.
    """
    if mirror is None or not (mirror / name).is_file():
        place = "GRADLEAK_DATA (unset)" if mirror is None else str(mirror / name)
        raise DataUnavailable(f"checkpoint {name}", [place], f"put it at {name} in the mirror")
    replace_weights(network, mirror / name)


def replace_weights(network: nn.Module, path: Path) -> None:
    """Replace every tensor of a network by a file's.

    Raises:
        BenchmarkError: no file of tensors, or of another network; with the file and the key.
    """
    wanted, found = network.state_dict(), _tensors(path)
    for key in [*wanted, *found]:
        shapes = [tuple(t[key].shape) if key in t else "no tensor" for t in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise BenchmarkError(f"{path}: {key} is {shapes[0]}; the network wants {shapes[1]}")
    network.load_state_dict(found)


def _tensors(path: Path) -> dict[str, Tensor]:
    """Read a state dict, of which each value is a tensor."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        raise BenchmarkError(f"{path}: no file of weights: {type(error).__name__}") from error
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise BenchmarkError(f"{path}: no state dict; wanted tensors by name")
    return content


def _fix_positions(network: nn.Module, spec: ImageSpec) -> None:
    if spec.position == "learned":
        return
    if getattr(network, "pos_embed", None) is None:
        raise ProtocolError(f"{spec.architecture} has no positions to fix as {spec.position}")
    fix_positions(network, spec.position)


def _initialise_tokens(network: nn.Module, spec: ImageSpec) -> None:
    start = spec.initialisation
    for names, std in (
        (("cls_token", "dist_token"), start.class_token_std),
        (("pos_embed",), start.position_std),
    ):
        for name in names:
            token = getattr(network, name, None)
            if std is not None and token is not None:
                nn.init.normal_(token, std=std)
