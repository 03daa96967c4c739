import dataclasses
import gzip
import io
import os
import struct
import zipfile

import numpy as np
import pytest
import torch
from PIL import Image

from benchmark.data import CATALOGUE, hub, images, load_images
from benchmark.data.pictures import Pictures
from benchmark.errors import BenchmarkError, DataUnavailable

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 28, 28), np.uint8)
LABELS = np.array([7, 2, 1])


@pytest.fixture(autouse=True)
def _no_other_place(monkeypatch):
    def unavailable(found, split):
        raise DataUnavailable(found.name, ["hub"], "hf download")

    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(hub, "_fetch", unavailable)


def expect(monkeypatch, name, pixels, labels):
    """Let the catalogue want these pictures as the test split."""
    digest = Pictures(pixels, labels, "test").digest()
    small = dataclasses.replace(CATALOGUE[name], digest={"test": digest})
    monkeypatch.setitem(CATALOGUE.read, name, small)


def write_idx(path, array):
    path.parent.mkdir(exist_ok=True)
    header = struct.pack(f">HBB{array.ndim}i", 0, 8, array.ndim, *array.shape)
    path.write_bytes(gzip.compress(header + array.astype(np.uint8).tobytes()))


@pytest.fixture
def mnist(tmp_path):
    write_idx(tmp_path / "mnist/t10k-images-idx3-ubyte.gz", PIXELS)
    write_idx(tmp_path / "mnist/t10k-labels-idx1-ubyte.gz", LABELS)
    return tmp_path


def test_mnist_is_read_from_its_idx_files(mnist, monkeypatch):
    expect(monkeypatch, "mnist", PIXELS, LABELS)
    found = load_images("mnist", "test", 28, mnist)
    assert torch.equal(found.images[:, 0], torch.tensor(PIXELS) / 255)
    assert found.labels.tolist() == [7, 2, 1]


def test_environment_names_the_mirror(mnist, monkeypatch):
    expect(monkeypatch, "mnist", PIXELS, LABELS)
    monkeypatch.setenv("GRADLEAK_DATA", str(mnist))
    assert len(load_images("mnist", "test", 28).images) == 3


def test_other_content_in_the_mirror_is_refused_with_its_file(mnist):
    wanted = CATALOGUE["mnist"].digest["test"]
    with pytest.raises(BenchmarkError, match=rf"t10k-images.*sha256 .*, the catalogue .*{wanted}"):
        load_images("mnist", "test", 28, mnist)


def test_other_labels_alone_are_refused(mnist, monkeypatch):
    expect(monkeypatch, "mnist", PIXELS, LABELS[::-1])
    with pytest.raises(BenchmarkError, match="content has sha256"):
        load_images("mnist", "test", 28, mnist)


@pytest.mark.parametrize(
    "content",
    [
        b"not gzip",
        gzip.compress(b"")[:10] + b"\xff" * 20,
        gzip.compress(b"\0\0\x0dx"),
        gzip.compress(b"\0\0\x08\3" + b"\0\0\0\x09" * 3),
        gzip.compress(b"\0\0\x08\xff" + b"\0\0\0\1" * 255 + b"x"),
        gzip.compress(b"\0\0\x08\1" + b"\0\0\0\1" + bytes(2**24)),
    ],
    ids=["no gzip", "no deflate", "no bytes", "truncated", "255 dimensions", "a bomb"],
)
def test_broken_idx_file_is_named(mnist, content):
    path = mnist / "mnist/t10k-images-idx3-ubyte.gz"
    path.write_bytes(content)
    with pytest.raises(
        BenchmarkError, match=r"t10k-images.*gz: offset \d+: .*; wanted an idx file"
    ):
        load_images("mnist", "test", 28, mnist)


def test_mnist_not_gzipped_is_the_same(mnist, monkeypatch):
    expect(monkeypatch, "mnist", PIXELS, LABELS)
    packed = load_images("mnist", "test", 28, mnist)
    for path in (mnist / "mnist").iterdir():
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    images._load.cache_clear()
    plain = load_images("mnist", "test", 28, mnist)
    assert plain is not packed
    assert torch.equal(plain.images, packed.images)
    assert torch.equal(plain.labels, packed.labels)


def test_labels_that_are_not_one_an_image_are_named(mnist):
    write_idx(mnist / "mnist/t10k-labels-idx1-ubyte.gz", LABELS[:2])
    with pytest.raises(BenchmarkError, match=r"\(3, 28, 28\) and labels \(2,\); wanted a label an"):
        load_images("mnist", "test", 28, mnist)


def test_cifar10_keeps_its_colours_and_is_resized(tmp_path, monkeypatch):
    pixels = np.zeros((2, 32, 32, 3), np.uint8)
    pixels[0, ..., 0], pixels[1, ..., 2] = 255, 51
    (tmp_path / "cifar10").mkdir()
    np.savez(tmp_path / "cifar10/test_lossless.npz", images=pixels, labels=LABELS[:2])
    expect(monkeypatch, "cifar10", pixels, LABELS[:2])
    found = load_images("cifar10", "test", 64, tmp_path)
    assert found.images.shape == (2, 3, 64, 64)
    torch.testing.assert_close(found.images.mean((2, 3)), torch.tensor([[1, 0, 0], [0, 0, 0.2]]))


def test_orl_faces_are_the_last_five_of_each_person_without_top_and_bottom(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 112, 92), np.uint8)
    labels = np.repeat([0, 1], 10)
    (tmp_path / "faces").mkdir()
    np.savez(tmp_path / "faces/orl_faces.npz", images=pixels, labels=labels)
    kept = [*range(5, 10), *range(15, 20)]
    expect(monkeypatch, "orl_faces", pixels[kept, 10:102], labels[kept])
    found = load_images("orl_faces", "test", 92, tmp_path)
    assert found.labels.tolist() == [0] * 5 + [1] * 5


def test_orl_faces_as_published_are_the_same(tmp_path, monkeypatch):
    pixels = np.random.default_rng(0).integers(0, 256, (400, 112, 92), np.uint8)
    for row, picture in enumerate(pixels):
        path = tmp_path / f"faces/s{row // 10 + 1}/{row % 10 + 1}.pgm"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(path)
    labels = np.repeat(range(40), 10)
    kept = np.arange(400) % 10 >= 5
    expect(monkeypatch, "orl_faces", pixels[kept, 10:102], labels[kept])
    found = load_images("orl_faces", "test", 92, tmp_path)
    assert torch.equal(found.images[:, 0], torch.tensor(pixels[kept, 10:102]) / 255)
    path.write_bytes(path.read_bytes()[:500])
    images._load.cache_clear()
    with pytest.raises(BenchmarkError, match=r"s40/10\.pgm: .*; wanted an image that decodes"):
        load_images("orl_faces", "test", 92, tmp_path)


def test_pipe_in_a_mirror_is_refused(tmp_path):
    (tmp_path / "cifar10").mkdir()
    os.mkfifo(tmp_path / "cifar10/test_lossless.npz")
    with pytest.raises(BenchmarkError, match=r"lossless\.npz: wanted a regular file"):
        load_images("cifar10", "test", 32, tmp_path)


def npz(header):
    """Return an npz file whose images are a member of this header, and nothing behind it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        size = struct.pack("<H", len(header))
        packed.writestr("images.npy", b"\x93NUMPY\x01\x00" + size + header)
        packed.writestr("labels.npy", b"bytes")
    return file.getvalue()


HEADER = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%s), }"


@pytest.mark.parametrize(
    "content",
    [
        npz(HEADER % b""),
        npz(HEADER % b"10**15, 28, 28"),
        npz(HEADER % b"1000000000000, 28, 28"),
        npz(b"(" * 5000),
        npz(b"{'descr': 'O', 'fortran_order': False, 'shape': (3,), }"),
    ],
    ids=["0-d", "no literal", "huge", "deep", "objects"],
)
def test_hostile_npz_is_refused_in_one_line(tmp_path, content):
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10/test_lossless.npz").write_bytes(content)
    with pytest.raises(BenchmarkError, match="cifar10") as refused:
        load_images("cifar10", "test", 32, tmp_path)
    assert "\n" not in str(refused.value)


def test_npz_without_labels_is_named(tmp_path):
    (tmp_path / "faces").mkdir()
    np.savez(tmp_path / "faces/orl_faces.npz", images=PIXELS)
    with pytest.raises(BenchmarkError, match=r"orl_faces\.npz: .*labels.*wanted an npz file"):
        load_images("orl_faces", "test", 92, tmp_path)


@pytest.mark.parametrize("kept", [0, 2, 200], ids=["empty", "no zip", "truncated"])
def test_broken_npz_file_is_named(tmp_path, kept):
    path = tmp_path / "faces/orl_faces.npz"
    path.parent.mkdir()
    np.savez(path, images=PIXELS, labels=LABELS)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(BenchmarkError, match=r"orl_faces\.npz: .*wanted an npz file"):
        load_images("orl_faces", "test", 92, tmp_path)


def test_missing_set_is_answered_with_every_place_and_a_command(tmp_path):
    with pytest.raises(DataUnavailable) as raised:
        load_images("mnist", "test", 28, tmp_path)
    missing = raised.value
    stem = tmp_path / "mnist/t10k-images-idx3-ubyte"
    assert missing.tried == [f"{stem}.gz", str(stem), "hub"]
    assert missing.command == (
        "GRADLEAK_DATA=DIR, with DIR/mnist/t10k-images-idx3-ubyte.gz or hf download"
    )


def test_unset_mirror_is_said_to_be_unset():
    with pytest.raises(DataUnavailable, match=r"tried GRADLEAK_DATA \(not set\); get it by"):
        load_images("orl_faces", "test", 92)


def test_mirror_is_tried_before_the_hub():
    assert [read.__name__ for read in images.READERS["mnist"]] == ["read_mnist", "read_hub"]
