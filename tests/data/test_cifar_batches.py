import os
import pickle

import numpy as np
import pytest
import torch

from benchmark.data import CATALOGUE, images, load_images, mirror
from benchmark.data.formats.cifar import read_binary, read_pickled
from benchmark.data.pictures import Pictures
from benchmark.errors import BenchmarkError

ROWS = {"train": {f"data_batch_{n}": 3 - n % 2 for n in range(1, 6)}, "test": {"test_batch": 2}}
DRAWN = np.random.default_rng(0)
PLANES = DRAWN.integers(0, 256, (4, 3072), np.uint8)
LABELS = [6, 9, 0, 4]


def pickled(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    batch = {b"batch_label": b"x", b"labels": LABELS, b"data": PLANES, b"filenames": [b"a.png"] * 4}
    (folder / name).write_bytes(pickle.dumps(batch, protocol=2))
    return folder / name


def binary(folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    records = np.concatenate([np.array(LABELS, np.uint8)[:, None], PLANES], 1)
    (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder / f"{name}.bin"


@pytest.mark.parametrize("split", ["train", "test"])
def test_three_forms_of_cifar10_are_one_set(tmp_path, monkeypatch, split):
    monkeypatch.setattr(mirror, "_BATCHES", ROWS)
    found = CATALOGUE["cifar10"]
    pictures = PLANES.reshape(4, 3, 32, 32).transpose(0, 2, 3, 1)
    kept = [row for count in ROWS[split].values() for row in range(count)]
    wanted = Pictures(pictures[kept], np.array(LABELS)[kept], "").digest()
    for name in ROWS[split]:
        binary(tmp_path / "cifar10/cifar-10-batches-bin", name)
    assert mirror.read_cifar10(found, split, tmp_path).digest() == wanted
    for name in ROWS[split]:
        pickled(tmp_path / "cifar10/cifar-10-batches-py", name)
    second = mirror.read_cifar10(found, split, tmp_path)
    assert second.files[0].parent.name == "cifar-10-batches-py"
    assert second.digest() == wanted
    np.savez(
        tmp_path / f"cifar10/{split}_lossless.npz",
        images=pictures[kept],
        labels=np.array(LABELS)[kept],
    )
    assert mirror.read_cifar10(found, split, tmp_path).digest() == wanted


def test_rows_taken_of_each_batch_are_as_many_as_the_catalogue_says():
    for split, batches in mirror._BATCHES.items():
        assert sum(batches.values()) == CATALOGUE["cifar10"].size[split]


class Runs:
    def __reduce__(self):
        return os.mkdir, ("ran",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_pickle_that_would_run_code_is_refused_and_runs_nothing(tmp_path, monkeypatch, protocol):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "test_batch"
    batch = {b"labels": LABELS, b"data": PLANES, b"more": Runs()}
    path.write_bytes(pickle.dumps(batch, protocol=protocol))
    with pytest.raises(BenchmarkError, match=r"test_batch: offset \d+: .*names \w+\.mkdir, which"):
        read_pickled(path, 2)
    assert not (tmp_path / "ran").exists()


def test_pickle_of_another_numpy_or_protocol_is_read(tmp_path):
    old = pickled(tmp_path, "test_batch").read_bytes()
    for content in (
        old.replace(b"numpy._core.multiarray", b"numpy.core.multiarray"),
        pickle.dumps({b"labels": LABELS, b"data": PLANES}, protocol=4),
    ):
        assert content != old
        (tmp_path / "test_batch").write_bytes(content)
        pixels, labels = read_pickled(tmp_path / "test_batch", 3)
        assert np.array_equal(pixels[2, :, :, 1].ravel(), PLANES[2, 1024:2048])
        assert labels.tolist() == LABELS[:3]


def test_truncated_batches_are_named_with_the_offset(tmp_path):
    for path, read, said in (
        (pickled(tmp_path, "test_batch"), read_pickled, "truncated|ran out"),
        (binary(tmp_path, "test_batch"), read_binary, "the file ends"),
    ):
        path.write_bytes(path.read_bytes()[:5000])
        with pytest.raises(BenchmarkError, match=rf"{path.name}: offset \d+: .*({said}).*; wanted"):
            read(path, 2)


def test_batch_that_is_none_is_named(tmp_path):
    (tmp_path / "short").write_bytes(pickle.dumps({b"labels": [1], b"data": PLANES}))
    with pytest.raises(BenchmarkError, match=r"short: .*data \(4, 3072\) uint8, 1 labels; wanted"):
        read_pickled(tmp_path / "short", 2)
    (tmp_path / "other").write_bytes(pickle.dumps([1]))
    with pytest.raises(BenchmarkError, match=r"other: offset \d+: TypeError.*; wanted a pickled"):
        read_pickled(tmp_path / "other", 2)
    with pytest.raises(BenchmarkError, match=r"none: No such file.*; wanted a pickled"):
        read_pickled(tmp_path / "none", 2)
    path = binary(tmp_path, "test_batch")
    content = bytearray(path.read_bytes())
    content[3073] = 10
    path.write_bytes(content)
    with pytest.raises(BenchmarkError, match=r"bin: offset 3073: label 10; wanted 0 to 9"):
        read_binary(path, 2)
    with pytest.raises(BenchmarkError, match=r"bin: offset 12292: .*at least 5 records"):
        read_binary(path, 5)


def test_mirror_of_the_user_holds_the_catalogue_s_cifar10(user_mirror):
    found = load_images("cifar10", "test", 32, user_mirror("cifar10"))
    assert found.images.shape == (1017, 3, 32, 32)
    assert isinstance(found.images, torch.Tensor)
    images._load.cache_clear()
