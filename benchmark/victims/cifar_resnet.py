"""The CIFAR ResNets of He et al. (CVPR 2016, section 4.2), shortcuts without parameters (A).

Trained weights: Y. Idelbayev, `akamaster/pytorch_resnet_cifar10`, whose names the modules bear.
"""

from __future__ import annotations

import hashlib
import io
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmark.errors import BenchmarkError, ProtocolError
from benchmark.victims.pretrained import published_file
from benchmark.victims.spec import ImageSpec

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Per channel, in pixels: the normalisation that the published weights were trained with."""

_BLOCKS = {"resnet20": 3, "resnet32": 5, "resnet56": 9}  # a stage
_CLASSES, _CHANNELS = 10, 3  # of the published weights
_URL = "https://github.com/akamaster/pytorch_resnet_cifar10/raw/master/pretrained_models"
_PUBLISHED = {
    "resnet20": (
        "resnet20-12fca82f.th",
        "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8",
    ),
    "resnet32": (
        "resnet32-d509ac18.th",
        "d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850",
    ),
    "resnet56": (
        "resnet56-4bfd9763.th",
        "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367",
    ),
}  # file and its sha256


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut that subsamples and pads with zero channels."""

    def __init__(self, channels_in: int, channels: int) -> None:
        super().__init__()
        self.stride = 1 if channels_in == channels else 2
        self.pad = (channels - channels_in) // 2
        self.conv1 = nn.Conv2d(channels_in, channels, 3, self.stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return functional.relu(branch + functional.pad(shortcut, (0, 0, 0, 0, self.pad, self.pad)))


class CifarResNet(nn.Module):
    """Image classifier of 6 * blocks + 2 layers, (batch, channel, size, size) to (batch, classes).

    Args:
        blocks: a stage, of which there are three, 16, 32 and 64 channels wide.
        channels: of the images.
        classes: of the labels.
    """

    def __init__(self, blocks: int, channels: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        self.layer1 = _stage(16, 16, blocks)
        self.layer2 = _stage(16, 32, blocks)
        self.layer3 = _stage(32, 64, blocks)
        self.linear = nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        x = functional.relu(self.bn1(self.conv1(images)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def _stage(channels_in: int, channels: int, blocks: int) -> nn.Sequential:
    rest = [BasicBlock(channels, channels) for _ in range(blocks - 1)]
    return nn.Sequential(BasicBlock(channels_in, channels), *rest)


def cifar_network(name: str, spec: ImageSpec, mirror: Path | None) -> CifarResNet:
    """Make a CIFAR ResNet, random weights from torch's global stream.

    Args:
        name: `resnet20`, `resnet32` or `resnet56`.
        spec: the victim in full.
        mirror: a folder whose `weights/` holds the published files; else torch hub's cache does.

    Raises:
        ProtocolError: no such network, or settings it cannot take.
        DataUnavailable: pretrained weights that lie in neither place.
        BenchmarkError: a file of weights that is not the published one.
    """
    if name not in _BLOCKS:
        known = ", ".join(f"cifar/{each}" for each in _BLOCKS)
        raise ProtocolError(f"no victim 'cifar/{name}'; known: {known}")
    network = CifarResNet(_BLOCKS[name], spec.channels, spec.classes)
    if spec.weights == "pretrained":
        if (spec.channels, spec.classes) != (_CHANNELS, _CLASSES):
            raise ProtocolError(
                f"cifar/{name}: pretrained weights are for {_CHANNELS} channels and {_CLASSES} "
                f"classes; the data has {spec.channels} and {spec.classes}"
            )
        network.load_state_dict(_published(name, mirror))
    return network


def _published(name: str, mirror: Path | None) -> dict[str, Tensor]:
    file_name, wanted = _PUBLISHED[name]
    path = published_file(f"{_URL}/{file_name}", mirror)
    content = path.read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    if digest != wanted:
        raise BenchmarkError(f"{path}: content has sha256 {digest}; wanted {wanted}")
    state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)["state_dict"]
    return {key.removeprefix("module."): tensor for key, tensor in state.items()}
