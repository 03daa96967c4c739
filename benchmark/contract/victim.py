"""What a victim is, whatever it reads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from pydantic import BaseModel
from torch import Tensor, nn

from benchmark.contract.batch import Batch


@dataclass(frozen=True, kw_only=True)
class Anatomy:
    """Where a transformer keeps its parts, by name of parameter; each track adds its own."""

    width: int
    heads: int
    position: str
    """Name of the positions, a parameter or a fixed buffer; a row is added to each token."""
    position_trained: bool
    final_norm: str | None
    """Prefix of a norm after the last block."""


class Victim(nn.Module, ABC):
    """The model that a client trains.

    Parameters are named as in the network: a timm model's updates carry timm's names.

    Attributes:
        track: what it reads.
        network: whose parameters they are.
        spec: what makes it again, in full.
        dropout: the probability with which it drops while a client trains.
    """

    track: ClassVar[Literal["vision", "text"]]
    network: nn.Module
    spec: BaseModel
    dropout: float = 0.0

    @abstractmethod
    def loss(self, batch: Batch) -> Tensor:
        """Return the mean cross entropy in nats of a batch of its track."""

    @property
    @abstractmethod
    def anatomy(self) -> Anatomy:
        """Where it keeps its parts; NotApplicable where they are not known."""

    @property
    def device(self) -> torch.device:
        """Where its parameters lie."""
        return next(self.parameters()).device

    def weights(self) -> dict[str, Tensor]:
        """Return every trained parameter by name, a tied one once: an update's entries."""
        return dict(self.network.named_parameters())
