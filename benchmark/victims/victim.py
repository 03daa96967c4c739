"""A victim of images: a network, its normalisation, and the spec that makes it again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmark.contract import Batch, ImageBatch, Victim
from benchmark.errors import NotApplicable, ProtocolError
from benchmark.seeds import global_stream
from benchmark.victims.anatomy import ImageAnatomy
from benchmark.victims.architectures import architecture, make_network
from benchmark.victims.checkpoint import load_checkpoint
from benchmark.victims.positions import fix_positions
from benchmark.victims.spec import ImageSpec


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
            network = make_network(spec, mirror)
            _initialise_tokens(network, spec)
        if spec.checkpoint is not None:
            load_checkpoint(network, spec.checkpoint, mirror)
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
        return architecture(self.spec).anatomy(self.network, self.spec)

    @property
    def head(self) -> str:
        """Prefix of the last linear layer: `.weight` (classes, width) and `.bias`."""
        return architecture(self.spec).head(self.network)

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
