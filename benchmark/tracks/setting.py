"""What a track adds to the one way a cell runs: its data, its yardsticks, its answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.contract import Grant, Reconstruction
from benchmark.errors import DataUnavailable
from benchmark.federation import Client, Round
from benchmark.protocol import FederationSettings, Protocol
from benchmark.records import Excerpt
from benchmark.registry import Submission
from benchmark.seeds import PUBLIC, Key


class Setting(ABC):
    """What all cells of a protocol share: the data, and the yardsticks of the scores.

    Attributes:
        public_network: frozen; or why a granted one cannot be had here, which is a matter for the
            attacks that need it alone; None where none is granted.
    """

    protocol: Protocol
    mirror: Path | None
    device: torch.device
    public_network: nn.Module | DataUnavailable | None = None

    @abstractmethod
    def round(self, seed: int, key: Key = PUBLIC) -> Round:
        """Make the undefended round of one seed: victim, batches, updates on demand.

        Args:
            seed: the base of every draw.
            key: that they hang on besides, where the protocol's batches are canaries.

        Raises:
            DataUnavailable: the victim's weights cannot be had here.
            ProtocolError: the data are too few for the trials.
        """

    @abstractmethod
    def facts(self, truth: Any) -> dict[Grant, Any]:  # noqa: ANN401  (the track's own batch)
        """Return what a threat model may grant of a trial; without one, what is known ahead."""

    def inverter(self, seed: int, defense: Submission) -> nn.Module | DataUnavailable | None:
        """Return what the attacker trained on updates of public data; None where none is granted.

        It is frozen, the same object for all trials of a cell; or why it cannot be had here, which
        is a matter for the attacks that need it alone.
        """
        return None

    @abstractmethod
    def answer(self, truth: Any) -> Tensor:  # noqa: ANN401
        """Return the truth as an attack would answer it: images, or tokens."""

    @abstractmethod
    def prior(self, truth: Any) -> Reconstruction:  # noqa: ANN401
        """Return what is known without any update: the score of whatever did not complete."""

    @abstractmethod
    def fault(self, answer: Reconstruction) -> str | None:
        """Return in one line why an answer is a failed trial, or None where it can be scored."""

    @abstractmethod
    def score(self, truth: Any, answer: Reconstruction) -> dict[str, float | None]:  # noqa: ANN401
        """Return the protocol's metrics of an answer without a fault."""

    def excerpt(self, truth: Any, answer: Reconstruction) -> Excerpt | None:  # noqa: ANN401
        """Return what a reader sees of an answer; None where pictures show it."""
        return None

    def about_data(self) -> Mapping[str, str | int]:
        """Return what is to be said of the data beyond the protocol, by a word each."""
        return {}


def client(federation: FederationSettings) -> Client:
    """Return how a protocol's clients make their updates."""
    return Client(federation.users, federation.local(), federation.mode == "train")


def round_key(key: Key, protocol: Protocol, defense: str) -> Key:
    """Return the key of a round behind a defense, from a run's.

    No two defenses, and no two protocols, share a canary: an attack that has read one finds it
    nowhere else. A round of the data's own is shared by all defenses, and hangs on no key.
    """
    return key.of(protocol.name, defense) if protocol.canaries else PUBLIC
