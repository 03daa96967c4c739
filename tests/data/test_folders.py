import hashlib

import numpy as np
import pytest
import torch
from PIL import Image

from benchmark.data import CATALOGUE, images, load_images
from benchmark.data.formats.encoded import decoded, framed
from benchmark.data.formats.folders import ImageFiles
from benchmark.data.lazy import LazyImages
from benchmark.errors import BenchmarkError, DataUnavailable

DRAWN = np.random.default_rng(0)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    images._load.cache_clear()


def draw(path, height=40, width=60):
    """Write smooth noise, which a JPEG keeps nearly as it is."""
    coarse = Image.fromarray(DRAWN.integers(0, 256, (4, 6, 3), np.uint8))
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse.resize((width, height), Image.Resampling.BICUBIC).save(path)
    return path


@pytest.fixture(scope="module")
def every_class():
    from timm.data import ImageNetInfo

    return ImageNetInfo().label_names()


@pytest.fixture(scope="module")
def classes(every_class):
    return [every_class[label] for label in (0, 3, 3, 500, 999, 999)]


def flat(folder, classes):
    return [
        draw(folder / f"imagenet/images/{wnid}_{n}.JPEG", 40 + n) for n, wnid in enumerate(classes)
    ]


def nested(folder, classes):
    return [
        draw(folder / f"imagenet/val/{wnid}/{n}.JPEG", 40 + n) for n, wnid in enumerate(classes)
    ]


@pytest.mark.parametrize("laid_out", [flat, nested])
def test_every_fifth_image_in_order_is_public_and_labels_are_ranks_of_wnids(
    tmp_path, classes, every_class, laid_out
):
    paths = laid_out(tmp_path, classes)
    train, test = (load_images("imagenet", split, 32, tmp_path) for split in ("train", "test"))
    assert train.labels.tolist() == [0, 999]
    assert test.labels.tolist() == [3, 3, 500, 999]
    assert train.class_names == test.class_names == tuple(every_class)
    for found, chosen in ((train, paths[::5]), (test, paths[1:5])):
        assert found.images.shape == (len(chosen), 3, 32, 32)
        for row, path in enumerate(chosen):
            wanted = np.asarray(framed(Image.open(path), 32, 256 / 224), np.float32) / 255
            shown = found.images[torch.tensor([row])][0]
            torch.testing.assert_close(shown, torch.tensor(wanted).permute(2, 0, 1))


def test_nothing_is_decoded_until_it_is_indexed(tmp_path, classes, monkeypatch):
    flat(tmp_path, classes)
    read = []
    content = ImageFiles.content
    monkeypatch.setattr(
        ImageFiles, "content", lambda self, row: read.append(row) or content(self, row)
    )
    found = load_images("imagenet", "test", 32, tmp_path)
    assert len(found.images) == len(found.labels) == 4
    assert not read
    assert found.images[torch.tensor([2, 0])].shape == (2, 3, 32, 32)
    assert read == [2, 0]


def test_shorter_side_is_256_of_224_and_the_middle_is_kept():
    across = Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (64, 1)))  # 256 x 64
    kept = np.asarray(framed(across, 56, 256 / 224))  # to 256 x 64, its middle 56 x 56
    assert kept.shape == (56, 56)
    assert np.array_equal(kept[0], np.arange(100, 156))
    halved = np.asarray(framed(across, 28, 256 / 224)).astype(int)  # to 128 x 32
    assert np.abs(halved[0] - np.arange(100, 156, 2)).max() <= 1
    assert framed(Image.new("RGB", (3, 500)), 224, 256 / 224).size == (224, 224)


def test_image_that_does_not_decode_is_named(tmp_path, classes):
    paths = flat(tmp_path, classes)
    paths[1].write_bytes(b"no image")
    paths[2].write_bytes(paths[2].read_bytes()[:400])
    paths[3].unlink()
    found = load_images("imagenet", "test", 32, tmp_path)
    paths[4].unlink()
    for row, path, said in (
        (0, paths[1], "cannot identify it; wanted an image that decodes"),
        (1, paths[2], ".*[Tt]runcated.*; wanted an image that decodes"),
        (2, paths[4], "No such file or directory; wanted an image"),
    ):
        with pytest.raises(BenchmarkError, match=rf"{path.name}: {said}") as raised:
            found.images[torch.tensor([row])]
        assert "\n" not in str(raised.value)


def test_grey_and_palette_images_become_colour(tmp_path):
    for mode in ("L", "P", "RGBA", "CMYK"):
        path = tmp_path / f"{mode}.{'jpg' if mode == 'CMYK' else 'png'}"
        Image.new(mode, (9, 9)).save(path)
        assert decoded(path.read_bytes(), str(path)).mode == "RGB"


def test_changed_file_is_refused_with_both_digests(tmp_path, classes):
    paths = flat(tmp_path, classes)
    sums = [f"{hashlib.sha256(p.read_bytes()).hexdigest()}  images/{p.name}\n" for p in paths]
    (tmp_path / "imagenet/SHA256SUMS").write_text("".join(sums))
    found = load_images("imagenet", "test", 32, tmp_path)
    found.images[torch.arange(4)]
    old = sums[2][:64]
    draw(paths[2])
    with pytest.raises(BenchmarkError, match=rf"{paths[2].name}: .* sha256 .*, SHA.* wants {old}"):
        found.images[torch.arange(4)]


def test_line_that_is_no_digest_is_named(tmp_path, classes):
    flat(tmp_path, classes)
    (tmp_path / "imagenet/SHA256SUMS").write_text("0" * 64 + "  README\nabc  images/x\n")
    with pytest.raises(BenchmarkError, match=r"SHA256SUMS: line 2: 'abc  images/x'; wanted a sha"):
        load_images("imagenet", "test", 32, tmp_path)


@pytest.mark.parametrize("name", ["tench.JPEG", "n99999999_x.JPEG", "n0144_x.JPEG"])
def test_image_without_a_class_is_named(tmp_path, name):
    draw(tmp_path / f"imagenet/images/{name}")
    with pytest.raises(
        BenchmarkError, match=rf"images/{name}: no ImageNet class; wanted n01440764"
    ):
        load_images("imagenet", "test", 32, tmp_path)


def test_folder_without_images_is_unavailable_and_the_gate_is_named(tmp_path):
    (tmp_path / "imagenet/val").mkdir(parents=True)
    with pytest.raises(DataUnavailable, match=r"imagenet/val \(no image\); get it by: gated: acc"):
        load_images("imagenet", "test", 32, tmp_path)
    with pytest.raises(DataUnavailable, match=r"ms_celeb_1m/train\.rec, .*ms_celeb_1m; get it by"):
        load_images("ms_celeb_1m", "test", 32, tmp_path)


def test_no_person_is_in_both_splits_of_a_folder_of_identities(tmp_path):
    for person in range(11):
        for number in range(2):
            draw(tmp_path / f"ms_celeb_1m/m.{person:02}/{number}.jpg", 112, 112)
    (tmp_path / "ms_celeb_1m/m.03/notes.txt").touch()
    train, test = (load_images("ms_celeb_1m", s, 112, tmp_path) for s in ("train", "test"))
    assert train.labels.tolist() == [0, 0, 5, 5, 10, 10]
    assert set(test.labels.tolist()) == {1, 2, 3, 4, 6, 7, 8, 9}
    assert len(test.labels) == 16
    assert train.class_names == test.class_names == tuple(f"m.{p:02}" for p in range(11))
    wanted = np.asarray(Image.open(tmp_path / "ms_celeb_1m/m.05/1.jpg"))
    assert np.array_equal((train.images[3] * 255).round().permute(1, 2, 0).byte(), wanted)


def test_mirror_of_the_user_holds_imagenet(user_mirror):
    mirror = user_mirror("imagenet")
    test = load_images("imagenet", "test", 224, mirror)
    assert isinstance(test.images, LazyImages)
    assert len(test.images) == 400
    assert len(set(test.labels.tolist())) == 400
    assert test.class_names[test.labels[0]] == "n01484850"
    batch = test.images[torch.tensor([0, 399])]
    assert batch.dtype == torch.float32
    assert 0 <= batch.min() < 0.1
    assert 0.9 < batch.max() <= 1
    assert len(load_images("imagenet", "train", 224, mirror).images) == 100
    assert CATALOGUE["imagenet"].hub is None
