"""A victim: a network, its normalisation, and the spec that makes it again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmark.contract import Batch
from benchmark.errors import ProtocolError
from benchmark.victims.april import AprilTransformer, BlockA, BlockB
from benchmark.victims.cifar_resnet import cifar_network
from benchmark.victims.positions import fix_positions
from benchmark.victims.spec import VictimSpec
from benchmark.victims.timm_models import timm_network

APRIL_BLOCKS: dict[str, type[BlockA] | type[BlockB]] = {"april_a": BlockA, "april_b": BlockB}


class Victim(nn.Module):
    """The model that a client trains, on images float32 in [0, 1], (batch, channel, size, size).

    Parameters are named as in the network: a timm model's updates carry timm's names.
    """

    def __init__(self, network: nn.Module, spec: VictimSpec) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.network, self.spec = network, spec
        self.register_buffer("mean", torch.tensor(spec.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(spec.std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.network((images - self.mean) / self.std)

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross entropy of a batch in nats."""
        device = self.mean.device
        return functional.cross_entropy(self(batch.images.to(device)), batch.labels.to(device))

    def weights(self) -> dict[str, Tensor]:
        """Return every trained parameter by name: what an update has an entry for."""
        return dict(self.network.named_parameters())

    def with_fixed_positions(self, encoding: Literal["sincos_1d", "sincos_2d"]) -> Victim:
        """Return a copy whose positions are fixed sine-cosine buffers."""
        twin = copy.deepcopy(self)
        twin.spec = self.spec.model_copy(update={"position": encoding})
        _fix_positions(twin.network, twin.spec)
        return twin

    def with_width(self, width: int, generator: torch.Generator) -> Victim:
        """Return a fresh victim of another width, with weights drawn from the generator."""
        if self.spec.weights == "pretrained":
            raise ProtocolError(f"{self.spec.architecture}: pretrained weights have one width")
        return build(self.spec.model_copy(update={"width": width}), generator)


def build(spec: VictimSpec, generator: torch.Generator, mirror: Path | None = None) -> Victim:
    """Make a victim, on the CPU, in evaluation mode (dropout off).

    Args:
        spec: the victim in full.
        generator: its only source of randomness.
        mirror: a folder whose `weights/` holds pretrained weights; else the local caches of the
            model hub (timm's) and of torch hub (the published ones) serve.

    Raises:
        ProtocolError: no such architecture, or sizes that do not fit.
        DataUnavailable: pretrained weights that lie in neither place.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):  # layers initialise from torch's global stream
        torch.manual_seed(seed)
        network = _network(spec, mirror)
        _initialise_tokens(network, spec)
    _fix_positions(network, spec)
    return Victim(network, spec).eval()


def _network(spec: VictimSpec, mirror: Path | None) -> nn.Module:
    sizes = {"patch": spec.patch, "width": spec.width, "depth": spec.depth}
    if spec.architecture in APRIL_BLOCKS:
        if spec.weights == "pretrained":
            raise ProtocolError(f"{spec.architecture} has no pretrained weights; wanted random")
        given = {name: value for name, value in sizes.items() if value is not None}
        try:
            return AprilTransformer(
                APRIL_BLOCKS[spec.architecture],
                channels=spec.channels,
                size=spec.size,
                classes=spec.classes,
                **given,
            )
        except ValueError as error:
            raise ProtocolError(f"{spec.architecture}: {error}") from error
    family, _, name = spec.architecture.partition("/")
    if family == "cifar":
        return cifar_network(name, spec, mirror)
    if family == "timm":
        return timm_network(name, spec, mirror)
    known = ", ".join([*APRIL_BLOCKS, "cifar/NAME", "timm/NAME"])
    raise ProtocolError(f"no victim {spec.architecture!r}; known: {known}")


def _fix_positions(network: nn.Module, spec: VictimSpec) -> None:
    if spec.position == "learned":
        return
    if getattr(network, "pos_embed", None) is None:
        raise ProtocolError(f"{spec.architecture} has no positions to fix as {spec.position}")
    fix_positions(network, spec.position)


def _initialise_tokens(network: nn.Module, spec: VictimSpec) -> None:
    start = spec.initialisation
    for names, std in (
        (("cls_token", "dist_token"), start.class_token_std),
        (("pos_embed",), start.position_std),
    ):
        for name in names:
            token = getattr(network, name, None)
            if std is not None and token is not None:
                nn.init.normal_(token, std=std)
