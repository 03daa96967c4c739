"""What a search is after: how a row of values stands for a private batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from benchmark.contract import Observation, Reconstruction
from benchmark.toolbox.matching.images import ImageUnknowns
from benchmark.toolbox.matching.search import Search
from benchmark.toolbox.matching.text import TextUnknowns
from benchmark.toolbox.matching.trace import Loss
from benchmark.victims import ImageVictim, TextVictim


class Unknowns(Protocol):
    """The unknowns of one batch, drawn from a standard normal at the start of a search."""

    @property
    def victim(self) -> ImageVictim | TextVictim:
        """Its network is read, never changed."""
        ...

    @property
    def numel(self) -> int:
        """Values a row."""
        ...

    @property
    def reads(self) -> Callable[[Tensor], Tensor]:
        """What turns inputs, trials and batch flattened into one, into logits."""
        ...

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """The least and the largest inputs that data can have."""
        ...

    def inputs(self, values: Tensor) -> Tensor:
        """Return what the network reads, (rows, batch, ...), from values (rows, numel)."""
        ...

    def loss(self, values: Tensor, labels: Tensor | None) -> Loss:
        """Return the victim's loss, from values (rows, numel) and what is known of labels."""
        ...

    def answer(self, values: Tensor, labels: Tensor | None) -> Reconstruction:
        """Return the batch that one row stands for, values (numel,) and its trial's labels."""
        ...

    def values(self, answer: Tensor) -> Tensor:
        """Return the row (numel,) that stands for a batch, the inverse of `answer`.

        Raises:
            ValueError: the row holds more than that says: labels, or text.
        """
        ...

    def blank(self) -> Reconstruction:
        """Return the answer of a trial that was not searched."""
        ...


def unknowns(seen: Observation, plan: Search) -> Unknowns:
    """Return what is unknown of any trial of a stack: the images, or the text."""
    kind = TextUnknowns if seen.model.track == "text" else ImageUnknowns
    return kind.of(seen, searched=plan.labels == "searched")
