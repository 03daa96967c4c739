"""Images as unknowns: normalised pixels and, where labels are searched, their logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmark.contract import Observation, Reconstruction
from benchmark.toolbox.matching.trace import Loss
from benchmark.victims import ImageVictim


@dataclass(frozen=True)
class ImageUnknowns:
    """A row is (batch * channel * height * width [+ batch * classes],); see `Unknowns`.

    Attributes:
        victim: its network is read, never changed.
        batch: images a row.
        searched: whether labels are unknown too (DLG, Zhu et al., 2019).
    """

    victim: ImageVictim
    batch: int
    searched: bool

    @staticmethod
    def of(seen: Observation, *, searched: bool) -> ImageUnknowns:
        """Return the unknown images of a trial."""
        return ImageUnknowns(ImageVictim.of(seen.model), seen.batch_size, searched)

    @property
    def numel(self) -> int:
        """Values a row."""
        return self._pixels + (self.batch * self.victim.spec.classes if self.searched else 0)

    @property
    def reads(self) -> Callable[[Tensor], Tensor]:
        """The network, which reads normalised images."""
        return self.victim.logits

    def inputs(self, values: Tensor) -> Tensor:
        """Return the normalised images, (rows, batch, channel, height, width): a view."""
        return values[:, : self._pixels].view(-1, *self._shape)

    def loss(self, values: Tensor, labels: Tensor | None) -> Loss:
        """Return the mean cross-entropy with labels (rows, batch) int64, or those searched."""
        if self.searched:
            wanted = self._logits(values).softmax(2)
        else:
            assert labels is not None
            wanted = functional.one_hot(labels, self.victim.spec.classes).to(values)
        return partial(self._cross_entropy, wanted)

    @property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Pixels of 0 and of 1."""
        victim = self.victim
        return (0 - victim.mean) / victim.std, (1 - victim.mean) / victim.std

    def answer(self, values: Tensor, labels: Tensor | None) -> Reconstruction:
        """Return pixels, and labels (batch,): the likeliest where they are searched."""
        pixels = self.inputs(values[None])[0] * self.victim.std + self.victim.mean
        named = self._logits(values[None]).argmax(2)[0] if self.searched else labels
        return Reconstruction(pixels.cpu(), labels=None if named is None else named.cpu())

    def values(self, answer: Tensor) -> Tensor:
        """Return the row of images (batch, channel, height, width), pixels in [0, 1]."""
        if self.searched:
            raise ValueError("images say nothing of the labels that are searched with them")
        images = answer.to(self.victim.mean)
        return ((images - self.victim.mean) / self.victim.std).flatten()

    def blank(self) -> Reconstruction:
        """Return black images."""
        return Reconstruction(torch.zeros(self._shape))

    @property
    def _shape(self) -> tuple[int, int, int, int]:
        spec = self.victim.spec
        return self.batch, spec.channels, spec.size, spec.size

    @property
    def _pixels(self) -> int:
        spec = self.victim.spec
        return self.batch * spec.channels * spec.size**2

    def _logits(self, values: Tensor) -> Tensor:
        classes = self.victim.spec.classes
        return values[:, -self.batch * classes :].reshape(-1, self.batch, classes)

    def _cross_entropy(self, wanted: Tensor, logits: Tensor, which: slice) -> Tensor:
        """Return losses (trials,), from probabilities (rows, batch, classes)."""
        found = logits.log_softmax(1).view(-1, self.batch, logits.shape[1])
        return -(wanted[which] * found).sum(2).mean(1)
