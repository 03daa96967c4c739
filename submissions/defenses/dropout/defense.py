"""Dropout as a defense (Scheliga et al., AAAI 2023, who show that it is not enough of one).

For images. While the client computes its gradient, hidden units are dropped at random and the
others scaled up, where a ViT in training drops them (Dosovitskiy et al., ICLR 2021): what an
attention's output layer writes, and what the second layer of an MLP reads and writes; each token
of each image by a draw of its own. Difference from theirs: none after the positions are added.
The server knows the rate, never a mask: masks come from the client's key, where those of the
victims that drop by themselves (`mode: train`) come from the public seed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor, nn

from benchmark.api import Batch, Defense, ImageVictim, Update, Victim


@dataclass(frozen=True)
class Dropout(Defense):
    """Drops hidden units in every block."""

    rate: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """Probability with which a unit is dropped."""

    def compute_update(
        self,
        batch: Batch,
        model: Victim,
        gradient: Callable[[Batch], Update],
        draws: np.random.Generator,
    ) -> Update:
        victim = ImageVictim.of(model)
        blocks = victim.anatomy.blocks
        if self.rate == 0:
            return gradient(batch)
        layers = victim.network.get_submodule
        written = [layers(block.attention_projection) for block in blocks]
        second = [layers(block.mlp[1]) for block in blocks]
        with self._dropping(written + second, second, draws):
            return gradient(batch)

    @contextmanager
    def _dropping(
        self, written: list[nn.Module], read: list[nn.Module], draws: np.random.Generator
    ) -> Iterator[None]:
        """Drop of what some layers write, and of what some read, while the block runs."""

        def after(_layer: nn.Module, _given: Any, wrote: Tensor) -> Tensor:  # noqa: ANN401
            return self._dropped(wrote, draws)

        def before(_layer: nn.Module, given: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return self._dropped(given[0], draws), *given[1:]

        with ExitStack() as hooks:
            for layer in written:
                hooks.enter_context(layer.register_forward_hook(after))
            for layer in read:
                hooks.enter_context(layer.register_forward_pre_hook(before))
            yield

    def _dropped(self, units: Tensor, draws: np.random.Generator) -> Tensor:
        kept = torch.from_numpy(draws.random(units.shape, dtype=np.float32) >= self.rate)
        return units * kept.to(units) / (1 - self.rate)
