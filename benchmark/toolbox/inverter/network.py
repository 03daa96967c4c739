"""A network from updates to images: Learning to Invert (Wu et al., UAI 2023)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from benchmark.contract import Update


@dataclass(frozen=True)
class InverterShape:
    """What decides an inverter's tensors.

    Attributes:
        entries: of the updates it reads: values by name of parameter, in order.
        images: (batch, channel, height, width) that it answers.
        bins: into which an update is hashed where it has more values.
        hidden: width of the two hidden layers.
    """

    entries: Mapping[str, int]
    images: tuple[int, ...]
    bins: int
    hidden: int

    @property
    def values(self) -> int:
        """Of an update, all together."""
        return sum(self.entries.values())

    @property
    def inputs(self) -> int:
        """Numbers that the first layer reads."""
        return min(self.bins, self.values)


class Inverter(nn.Module):
    """An MLP with two hidden layers, of what an update's values sum up to in bins.

    Large updates are hashed (Weinberger et al., ICML 2009): each value goes, with a sign, into one
    bin, both drawn once. Differences from the paper's code: it hashes without signs;
    here inputs are brought to mean 0 and deviation 1 over the updates that the inverter is trained
    on, so that one rate serves defenses whose updates differ by orders of magnitude.
    """

    def __init__(self, shape: InverterShape) -> None:
        super().__init__()
        self.shape = shape
        self.mean: Tensor
        self.std: Tensor
        self.bins: Tensor | None
        self.signs: Tensor | None
        self.register_buffer("mean", torch.zeros(shape.inputs))
        self.register_buffer("std", torch.ones(shape.inputs))
        width, pixels = shape.hidden, torch.Size(shape.images).numel()
        self.layers = nn.Sequential(
            *(nn.Linear(shape.inputs, width), nn.ReLU()),
            *(nn.Linear(width, width), nn.ReLU()),
            nn.Linear(width, pixels),
        )
        hashes = shape.values > shape.bins
        draws = torch.Generator().manual_seed(0)  # public: the server's own choice
        bins = torch.randint(shape.bins, (shape.values,), generator=draws, dtype=torch.int32)
        signs = 2 * torch.randint(2, (shape.values,), generator=draws, dtype=torch.int8) - 1
        self.register_buffer("bins", bins if hashes else None, persistent=False)
        self.register_buffer("signs", signs if hashes else None, persistent=False)

    def read(self, update: Update) -> Tensor:
        """Return what is read of an update, (inputs,), before it is brought to one scale."""
        flat = torch.cat([update[name].flatten() for name in self.shape.entries])
        if self.bins is None or self.signs is None:
            return flat
        return flat.new_zeros(self.shape.bins).index_add_(0, self.bins, flat * self.signs)

    def scale(self, inputs: Tensor) -> None:
        """Take mean and deviation from what is read of many updates, (updates, inputs)."""
        self.mean.copy_(inputs.mean(0))
        deviation = inputs.std(0, correction=0)
        self.std.copy_(torch.where(deviation > 0, deviation, 1))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return images (updates, *shape.images) of what was read of updates."""
        pixels: Tensor = self.layers((inputs - self.mean) / self.std)
        return pixels.view(-1, *self.shape.images)
