"""A private batch: what a victim's loss is of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, Self, cast

import torch
from torch import Tensor


class Batch(ABC):
    """A private batch of images, or of sequences; its length is how many."""

    @abstractmethod
    def __len__(self) -> int: ...

    def select(self, rows: Tensor) -> Self:
        """Return the batch of some of the examples, (any,) int64."""
        parts = {part.name: getattr(self, part.name) for part in fields(cast("Any", self))}
        chosen = {name: None if each is None else each[rows] for name, each in parts.items()}
        return type(self)(**chosen)

    def examples(self) -> list[Self]:
        """Return the batches of one that make this one; of one, it is itself."""
        if len(self) == 1:
            return [self]
        return [self.select(torch.tensor([row])) for row in range(len(self))]


@dataclass(frozen=True)
class ImageBatch(Batch):
    """A private batch: images float32 in [0, 1], (batch, channel, height, width); labels int64.

    Attributes:
        images: see above.
        labels: (batch,).
        masked: (batch, patches) bool, the patches whose position a defense hides from the victim,
            and from the server; None where it hides none.
    """

    images: Tensor
    labels: Tensor
    masked: Tensor | None = None

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class TextBatch(Batch):
    """A private batch of text.

    Attributes:
        tokens: (batch, length) int64, what was written.
        masked: (batch, length) bool, the places a masked language model has to guess; None where
            the victim is causal and guesses every next token.
    """

    tokens: Tensor
    masked: Tensor | None = None

    def __len__(self) -> int:
        return len(self.tokens)
