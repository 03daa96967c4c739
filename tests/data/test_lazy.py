import dataclasses

import numpy as np
import pytest
import torch

from benchmark.data import images, load_images
from benchmark.data.images import ImageSet
from benchmark.data.lazy import LazyImages

ALL = torch.rand(120, 2, 4, 5, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def lazy():
    return LazyImages(lambda rows: ALL[torch.from_numpy(rows)], ALL.shape)


def test_every_index_of_a_tensor_is_answered_alike(lazy):
    assert lazy.shape == ALL.shape
    assert len(lazy) == len(ALL)
    for rows in (
        torch.tensor([7, 0, 7]),
        torch.tensor([[1, 2], [3, 119]]),
        torch.arange(120) % 3 == 0,
        torch.tensor([], dtype=torch.long),
        slice(5, 9),
        11,
        -1,
    ):
        assert torch.equal(lazy[rows], ALL[rows])
    with pytest.raises(IndexError):
        lazy[torch.tensor([120])]


def test_statistics_are_those_of_all_images(lazy):
    held, made = (ImageSet("x", "train", found, torch.zeros(120), ()) for found in (ALL, lazy))
    for field in dataclasses.fields(held.statistics):
        wanted, found = (getattr(each.statistics, field.name) for each in (held, made))
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_statistics_of_a_large_split_take_a_thousand_images_from_end_to_end():
    asked = []

    def make(rows):
        asked.extend(rows.tolist())
        return torch.zeros(len(rows), 1, 1, 1)

    LazyImages(make, (100_000, 1, 1, 1)).statistics()
    assert len(asked) == len(set(asked)) == 1000
    assert (asked[0], asked[-1]) == (0, 99_999)
    assert max(np.diff(asked)) <= 102


def test_large_split_is_resized_when_indexed_and_comes_to_the_same(monkeypatch):
    held = load_images("digits", "test", 16)
    images._load.cache_clear()
    monkeypatch.setattr(images, "_HELD", 1000)
    made = load_images("digits", "test", 16)
    assert isinstance(held.images, torch.Tensor)
    assert isinstance(made.images, LazyImages)
    rows = torch.tensor([5, 700, 0])
    torch.testing.assert_close(made.images[rows], held.images[rows])
    images._load.cache_clear()
