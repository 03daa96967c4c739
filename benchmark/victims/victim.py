"""A victim of images: a network, its normalisation, and the spec that makes it again."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from benchmark.contract import Batch, ImageBatch, Victim
from benchmark.errors import NotApplicable, ProtocolError
from benchmark.seeds import global_stream
from benchmark.victims.anatomy import ImageAnatomy
from benchmark.victims.architectures import architecture, complete, make_network
from benchmark.victims.bottleneck import BOTTLENECK, VariationalBottleneck, add_bottleneck
from benchmark.victims.checkpoint import load_checkpoint
from benchmark.victims.inputs import layer_inputs
from benchmark.victims.jigsaw import (
    UNKNOWN,
    add_jigsaw,
    draw_unknown,
    jigsaw_positions,
    localisation_error,
)
from benchmark.victims.positions import Encoding, fix_positions
from benchmark.victims.spec import Bottleneck, ImageSpec, Jigsaw


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
        spec = complete(spec, mirror)
        with global_stream(generator):
            network = make_network(spec, mirror)
            _initialise_tokens(network, spec)
        if spec.checkpoint is not None:
            load_checkpoint(network, spec.checkpoint, mirror)
            # so that a sandbox needs no file, and no other width is asked of these weights
            spec = spec.model_copy(update={"checkpoint": None, "weights": "pretrained"})
        _fix_positions(network, spec)
        victim = cls(network, spec)
        if spec.jigsaw is not None:
            add_jigsaw(network, spec.jigsaw, victim.anatomy)
        if spec.bottleneck is not None:
            add_bottleneck(network, victim.head, spec.bottleneck.width)
        return victim.eval()

    @classmethod
    def of(cls, model: nn.Module) -> ImageVictim:
        """Return a model as what it is; NotApplicable where it reads no images."""
        if not isinstance(model, cls):
            raise NotApplicable("the parts of a LanguageVictim are not known")  # as recorded
        return model

    @property
    def anatomy(self) -> ImageAnatomy:
        """Where it keeps its parts; NotApplicable where they are not known."""
        parts = architecture(self.spec).anatomy(self.network, self.spec)
        if self.spec.jigsaw is None or not self.spec.jigsaw.unknown:
            return parts
        return replace(parts, unknown_position=UNKNOWN)

    @property
    def head(self) -> str:
        """Prefix of the last linear layer: `.weight` (classes, width) and `.bias`."""
        return architecture(self.spec).head(self.network)

    def forward(self, images: Tensor, masked: Tensor | None = None) -> Tensor:
        return self.logits((images - self.mean) / self.std, masked)

    def logits(self, normalised: Tensor, masked: Tensor | None = None) -> Tensor:
        """Return the logits (batch, classes) of normalised images.

        Args:
            normalised: (batch, channel, size, size).
            masked: (batch, patches) bool, whose position is unknown; None where no patch's is.
        """
        jigsaw = self.spec.jigsaw
        if jigsaw is None or (masked is None and not jigsaw.index):
            logits: Tensor = self.network(normalised)
            return logits
        parts = self.anatomy
        chosen = {parts.position: jigsaw_positions(self.network, jigsaw, parts, masked)}
        logits = functional_call(self.network, chosen, (normalised,))
        return logits

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross entropy of a batch in nats, and what defenses add to it."""
        assert isinstance(batch, ImageBatch)
        masked = None if batch.masked is None else batch.masked.to(self.device)
        bottleneck = self._bottleneck
        with layer_inputs(*([] if bottleneck is None else [bottleneck])) as read:
            logits = self(batch.images.to(self.device), masked)
        loss = functional.cross_entropy(logits, batch.labels.to(self.device))
        if bottleneck is not None and self.spec.bottleneck is not None:
            loss = loss + self.spec.bottleneck.weight * bottleneck.divergence(read[0])
        return loss if self.spec.jigsaw is None else loss + self.localisation(masked)

    @property
    def _bottleneck(self) -> VariationalBottleneck | None:
        if self.spec.bottleneck is None:
            return None
        found = self.network.get_submodule(BOTTLENECK)
        assert isinstance(found, VariationalBottleneck)
        return found

    @contextmanager
    def drawing(self, draw: Callable[[torch.Size], Tensor]) -> Iterator[None]:
        """Draw in the bottleneck while the block runs, where it reads the mean elsewhere.

        Args:
            draw: standard normal numbers of a shape.
        """
        bottleneck = self._bottleneck
        assert bottleneck is not None, "drawing wants a bottleneck"
        bottleneck.draw = draw
        try:
            yield
        finally:
            bottleneck.draw = None

    def localisation(self, masked: Tensor | None = None) -> Tensor:
        """Return a jigsaw's part of the loss, which no image has a say in; 0 where it has none.

        Args:
            masked: (batch, patches) bool; None where no patch is.
        """
        jigsaw = self.spec.jigsaw
        if jigsaw is None or jigsaw.localisation is None:
            return self.mean.new_zeros(())
        return jigsaw.weight * localisation_error(self.network, jigsaw, self.anatomy, masked)

    def with_jigsaw(self, jigsaw: Jigsaw, generator: torch.Generator) -> ImageVictim:
        """Return a copy with what Masked Jigsaw Puzzles add, drawn from the generator.

        Raises:
            NotApplicable: it has no patches, or none whose parts are known.
        """
        twin = copy.deepcopy(self)
        twin.spec = self.spec.model_copy(update={"jigsaw": jigsaw})
        with global_stream(generator):
            add_jigsaw(twin.network, jigsaw, twin.anatomy)
        if jigsaw.unknown:
            draw_unknown(twin.network, twin.anatomy, generator)
        return twin.to(self.device).eval()

    def with_bottleneck(self, bottleneck: Bottleneck, generator: torch.Generator) -> ImageVictim:
        """Return a copy with a variational bottleneck before the head, drawn from the generator."""
        twin = copy.deepcopy(self)
        twin.spec = self.spec.model_copy(update={"bottleneck": bottleneck})
        with global_stream(generator):
            add_bottleneck(twin.network, twin.head, bottleneck.width)
        return twin.to(self.device).eval()

    def with_fixed_positions(self, encoding: Encoding) -> ImageVictim:
        """Return a copy whose positions are fixed buffers: sine-cosine, or zeros."""
        twin = copy.deepcopy(self)
        twin.spec = self.spec.model_copy(update={"position": encoding})
        _fix_positions(twin.network, twin.spec)
        return twin

    def with_width(self, width: int, generator: torch.Generator) -> ImageVictim:
        """Return a fresh victim of another width, with weights drawn from the generator.

        Raises:
            NotApplicable: these weights are trained, or its config states its width.
        """
        if self.spec.weights == "pretrained":
            raise NotApplicable(f"{self.spec.architecture}: trained weights have one width")
        if self.spec.config is not None:
            raise NotApplicable(f"{self.spec.architecture}: its config states its width")
        return self.make(self.spec.model_copy(update={"width": width}), generator)


def _fix_positions(network: nn.Module, spec: ImageSpec) -> None:
    if spec.position == "learned":
        return
    _, position = architecture(spec).tokens(network)
    if position is None:
        raise ProtocolError(f"{spec.architecture} has no positions to fix as {spec.position}")
    fix_positions(network, spec.position, position)


def _initialise_tokens(network: nn.Module, spec: ImageSpec) -> None:
    start, (prefix, position) = spec.initialisation, architecture(spec).tokens(network)
    for names, std in (
        (prefix, start.class_token_std),
        (() if position is None else (position,), start.position_std),
    ):
        for name in names:
            if std is not None:
                nn.init.normal_(attrgetter(name)(network), std=std)
