"""The prior that images are of their classes, as a network that is not the victim sees them."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True, eq=False)  # compared by identity: tensors do not compare to one bool
class ClassLoss:
    """The mean cross-entropy of a network's answers (DeepInversion, Yin et al., CVPR 2020).

    Attributes:
        network: frozen and in evaluation mode; takes pixels in [0, 1], (rows, channel, height,
            width), and knows the same classes by the same numbers.
        mean: (channel,), of the normalised images given: pixels = images * std + mean.
        std: (channel,).
    """

    network: nn.Module
    mean: Tensor
    std: Tensor

    def __call__(self, images: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of each trial, (trials,).

        Args:
            images: (trials, batch, channel, height, width), normalised.
            labels: (trials, batch) int64.
        """
        pixels = images * self.std.view(-1, 1, 1) + self.mean.view(-1, 1, 1)
        logits = self.network(pixels.flatten(0, 1)).view(*labels.shape, -1)
        return -logits.log_softmax(2).gather(2, labels[..., None])[..., 0].mean(1)
