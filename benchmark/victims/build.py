"""Making a victim from its spec."""

from __future__ import annotations

from pathlib import Path
from typing import overload

import torch
from torch import nn

from benchmark.contract import Victim
from benchmark.victims.language import TextSpec, TextVictim
from benchmark.victims.spec import ImageSpec
from benchmark.victims.victim import ImageVictim


@overload
def build(
    spec: ImageSpec, generator: torch.Generator, mirror: Path | None = None
) -> ImageVictim: ...
@overload
def build(spec: TextSpec, generator: torch.Generator, mirror: Path | None = None) -> TextVictim: ...
def build(
    spec: ImageSpec | TextSpec, generator: torch.Generator, mirror: Path | None = None
) -> Victim:
    """Make a victim, on the CPU, in evaluation mode (dropout off).

    Args:
        spec: the victim in full.
        generator: its only source of randomness.
        mirror: a folder whose `weights/` holds pretrained weights; else the local caches of the
            model hub (timm's and the language models') and of torch hub (the published ones)
            serve. A checkpoint's path starts here.

    Raises:
        ProtocolError: no such architecture, or settings that do not fit.
        DataUnavailable: weights that are not on this machine.
        BenchmarkError: a checkpoint of another network.
    """
    if isinstance(spec, TextSpec):
        return TextVictim.make(spec, generator, mirror)
    return ImageVictim.make(spec, generator, mirror)


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return a victim's parameters and fixed buffers by the names that its anatomy uses."""
    network = model.get_submodule("network")
    named = {**dict(network.named_parameters()), **dict(network.named_buffers())}
    return {name: tensor.detach() for name, tensor in named.items()}
