"""What the vision track grants."""

import pytest
import torch

from benchmark.contract import Grant
from benchmark.errors import ProtocolError
from benchmark.protocol import load_protocol
from benchmark.tracks import VisionSetting

LEVELS = {"grants": ["batch_size", "pixel_levels"]}


def loaded(path):
    return VisionSetting.load(load_protocol(str(path)), None, torch.device("cpu"))


def test_levels_are_granted_of_images_of_8_bits(tiny):
    setting = loaded(tiny(threat=LEVELS, data={"name": "photographs", "size": 32}))
    assert setting.facts(None)[Grant.PIXEL_LEVELS] == 256


def test_levels_cannot_be_granted_of_images_resized_to_fractions(tiny):
    path = tiny(threat=LEVELS, data={"name": "digits", "size": 28})
    with pytest.raises(ProtocolError, match="digits at 28 px is resized to fractions of a level"):
        loaded(path)
