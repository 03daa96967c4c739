import dataclasses

import numpy as np
import pytest
import torch
from PIL import Image

from benchmark.data import CATALOGUE, embedded, load_images
from benchmark.errors import BenchmarkError, DataUnavailable, ProtocolError

EMBEDDED = ["digits", "photographs", "faces"]
SIZE = {"digits": 8, "photographs": 224, "faces": 25}


@pytest.mark.parametrize("name", EMBEDDED)
@pytest.mark.parametrize("split", ["train", "test"])
def test_embedded_set_matches_its_digest_and_is_pixels_between_0_and_1(name, split):
    found = load_images(name, split, SIZE[name])
    assert found.images.dtype == torch.float32
    assert found.images.shape[-2:] == (SIZE[name], SIZE[name])
    assert found.images.min() >= 0
    assert 0.9 < found.images.max() <= 1
    assert found.labels.dtype == torch.int64
    assert len(found.labels) == len(found.images)
    assert found.labels.max() < len(found.class_names)


@pytest.mark.parametrize("name", EMBEDDED)
def test_splits_share_no_picture(name):
    pictures = [load_images(name, split, SIZE[name]).images for split in ("train", "test")]
    train, test = ({picture.numpy().tobytes() for picture in part} for part in pictures)
    assert len(train) + len(test) == len(pictures[0]) + len(pictures[1])
    assert not train & test


def test_digits_are_those_of_their_library():
    from sklearn.datasets import load_digits

    digits = load_digits()
    found = load_images("digits", "test", 8)
    assert torch.equal(found.images[:, 0] * 16, torch.tensor(digits.images[1000:]).float())
    assert torch.equal(found.labels, torch.tensor(digits.target[1000:]))


@pytest.mark.parametrize("size", [32, 224])
def test_no_crop_of_a_private_photograph_is_public(size):
    train, test = (load_images("photographs", split, size) for split in ("train", "test"))
    assert train.class_names == test.class_names
    assert not set(train.labels.tolist()) & set(test.labels.tolist())
    assert {"astronaut", "chelsea", "coffee", "rocket", "china", "flower"} == {
        test.class_names[label] for label in test.labels.tolist()
    }
    assert len(test.images) == {32: 384, 224: 14}[size]
    assert len(train.images) == {32: 256, 224: 16}[size]


def test_crops_join_to_the_middle_of_their_photograph():
    photograph = embedded.read_photographs(CATALOGUE["photographs"], "test", None).pixels[0]
    crops = load_images("photographs", "test", 224).images[:4]
    rows = [torch.cat([crops[i], crops[i + 1]], dim=2) for i in (0, 2)]
    middle = torch.tensor(photograph[32:480, 32:480]).permute(2, 0, 1) / 255  # of 512 x 512
    assert torch.equal(torch.cat(rows, dim=1), middle)


def test_another_side_of_photographs_is_refused():
    with pytest.raises(ProtocolError, match="cannot be had at 64 pixels; wanted 32 or 224"):
        load_images("photographs", "test", 64)


def test_resizing_is_that_of_pillow():
    native, small = (load_images("faces", "test", size).images for size in (25, 5))
    resized = Image.fromarray(native[0, 0].numpy()).resize((5, 5), Image.Resampling.BILINEAR)
    torch.testing.assert_close(small[0, 0], torch.tensor(np.asarray(resized)))


def test_statistics_are_over_all_pixels_of_the_split():
    found = load_images("photographs", "train", 32)
    pixels = found.images.permute(1, 0, 2, 3).reshape(3, -1).double()
    torch.testing.assert_close(found.statistics.mean, pixels.mean(1).float())
    torch.testing.assert_close(found.statistics.std, pixels.std(1, correction=0).float())
    torch.testing.assert_close(found.statistics.mean_image, found.images.mean(0))


def test_changed_content_is_refused_with_both_digests(monkeypatch):
    changed = dataclasses.replace(CATALOGUE["faces"], digest={"test": "0" * 64})
    monkeypatch.setitem(CATALOGUE.read, "faces", changed)
    with pytest.raises(BenchmarkError, match=r"sha256 7f73599f.*, the catalogue wants 0{64}"):
        load_images("faces", "test", 25)


def test_file_missing_from_a_package_is_unavailable_and_not_downloaded(monkeypatch):
    monkeypatch.setitem(embedded._FILES, "china", ("skimage", "data/none.jpg"))
    with pytest.raises(DataUnavailable, match=r"skimage/data/none.jpg.*pip install"):
        embedded.read_photographs(CATALOGUE["photographs"], "test", None)


def test_second_call_returns_the_first_ones_set():
    assert load_images("digits", "test", 8) is load_images("digits", "test", 8)
