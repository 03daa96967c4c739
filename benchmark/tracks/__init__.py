from pathlib import Path

import torch

from benchmark.protocol import Protocol, TextProtocol, VisionProtocol
from benchmark.tracks.setting import Setting, round_key
from benchmark.tracks.text import TextSetting
from benchmark.tracks.vision import VisionSetting, image_spec

__all__ = ["Setting", "TextSetting", "VisionSetting", "image_spec", "load_setting", "round_key"]


def load_setting(protocol: Protocol, mirror: Path | None, device: torch.device) -> Setting:
    """Load what all cells of a protocol share.

    Raises:
        DataUnavailable: the data set, or its tokenizer, cannot be had here.
    """
    if isinstance(protocol, TextProtocol):
        return TextSetting.load(protocol, mirror, device)
    assert isinstance(protocol, VisionProtocol)
    return VisionSetting.load(protocol, mirror, device)
