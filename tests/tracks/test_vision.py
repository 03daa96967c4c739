"""What the vision track grants."""

import pytest
import torch

from benchmark.contract import Grant
from benchmark.data import load_images
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


def test_public_images_are_of_the_public_split_and_the_same_each_time(tiny):
    granted = {"grants": ["batch_size", "public_images"]}
    setting = loaded(tiny(threat=granted, data={"name": "digits", "size": 8}))
    shown, public = setting.facts(None)[Grant.PUBLIC_IMAGES], load_images("digits", "train", 8)
    assert len(shown) == len(shown.labels) == 1000
    rows = {(image.numpy().tobytes(), int(label)) for image, label in pairs(public)}
    assert all((one.numpy().tobytes(), int(label)) in rows for one, label in pairs(shown))
    again = loaded(tiny(threat=granted, data={"name": "digits", "size": 8}))
    assert torch.equal(shown.images, again.public_images.images)
    assert loaded(tiny()).facts(None)[Grant.PUBLIC_IMAGES] is None


def pairs(images):
    return zip(images.images[:], images.labels, strict=True)
