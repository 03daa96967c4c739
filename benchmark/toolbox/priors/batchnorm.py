"""The prior of a convolutional network's BatchNorm statistics."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.linalg import vector_norm

from benchmark.errors import NotApplicable


@dataclass(frozen=True, eq=False)  # compared by identity: tensors do not compare to one bool
class BatchNormStatistics:
    """How far a batch's features are from what a network saw in training.

    The sum over BatchNorm layers of |mean - running mean|_2 + |variance - running variance|_2,
    those of the layer's input over ONE TRIAL's batch and space: DeepInversion (Yin et al., CVPR
    2020) and eq. 4 of GradViT (Hatamizadeh et al., CVPR 2022). Variances are biased (divided by
    the count), as in DeepInversion's code. A layer that runs twice counts twice.

    Attributes:
        network: frozen and in evaluation mode; takes pixels in [0, 1], (rows, channel, height,
            width), as a Victim does. Training mode, in which the prior would move the running
            statistics, is a ValueError; no BatchNorm2d with running statistics is NotApplicable.
        mean: (channel,), of the normalised images given: pixels = images * std + mean.
        std: (channel,).
        first_weight: weight of the layer that runs first; 10 by default in DeepInversion's code.
    """

    network: nn.Module
    mean: Tensor
    std: Tensor
    first_weight: float = 1.0

    def __post_init__(self) -> None:
        if not self._layers():
            raise NotApplicable(
                f"{type(self.network).__name__} holds no BatchNorm2d with running statistics"
            )

    def __call__(self, images: Tensor) -> Tensor:
        """Return the penalty of each trial, (trials,); the rows of all trials run in one pass.

        Args:
            images: (trials, batch, channel, height, width), normalised.
        """
        trials = len(images)
        distances: list[Tensor] = []

        def measure(layer: nn.Module, inputs: tuple[Tensor]) -> None:
            assert isinstance(layer, nn.BatchNorm2d)
            rows = inputs[0]  # of all trials
            distances.append(_distance(layer, rows.reshape(trials, -1, *rows.shape[1:])))

        pixels = images * self.std.view(-1, 1, 1) + self.mean.view(-1, 1, 1)
        with ExitStack() as hooks:  # takes every hook off again, whatever happens
            for layer in self._layers():
                if layer.training:
                    raise ValueError(
                        "BatchNormStatistics: a BatchNorm2d is in training mode; call eval() first"
                    )
                hooks.enter_context(layer.register_forward_pre_hook(measure))
            self.network(pixels.flatten(0, 1))
        distances[0] = distances[0] * self.first_weight
        return torch.stack(distances).sum(0)

    def _layers(self) -> list[nn.BatchNorm2d]:
        layers = (each for each in self.network.modules() if isinstance(each, nn.BatchNorm2d))
        return [layer for layer in layers if layer.running_mean is not None]


def _distance(layer: nn.BatchNorm2d, features: Tensor) -> Tensor:
    """Return (trials,) from a layer's input, (trials, batch, channel, height, width)."""
    assert layer.running_mean is not None
    assert layer.running_var is not None
    variance, mean = torch.var_mean(features, dim=(1, 3, 4), correction=0)
    off_mean, off_variance = mean - layer.running_mean, variance - layer.running_var
    return vector_norm(off_mean, dim=1) + vector_norm(off_variance, dim=1)
