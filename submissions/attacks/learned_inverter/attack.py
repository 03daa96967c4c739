"""Learning to Invert (Wu et al., UAI 2023): a network that maps updates to images.

For images. The server knows its own model and the defense: it computes updates of public images
through that defense, with draws of its own, and trains an MLP to return the images. `gradleak train
PROTOCOL --inverter DEFENSE` does so once; a run applies it. It meets any defense whose draws are
fresh in each update; one with a key that clients share (model encryption) it does not know. Of
several rounds the first is read. Differences: see `benchmark.toolbox.inverter`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from benchmark.api import Attack, Grant, Observation, Reconstruction
from benchmark.toolbox.inverter import Inverter


@dataclass(frozen=True)
class LearnedInverter(Attack):
    """Applies the inverter that was trained for the protocol, the defense and the victim."""

    needs: ClassVar = frozenset({Grant.TRAINED_INVERTER})

    def reconstruct(self, seen: Observation) -> Reconstruction:
        inverter = seen.trained_inverter
        assert isinstance(inverter, Inverter)
        with torch.no_grad():
            images = inverter(inverter.read(seen.update)[None])[0]
        return Reconstruction(images.cpu())
