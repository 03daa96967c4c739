import gc
import weakref

import pytest
import torch

from benchmark.contract import Update
from benchmark.federation import kept
from benchmark.federation.kept import Kept, in_file


def update_of(trial):
    return Update({"weight": torch.full((3, 2), float(trial)), "bias": torch.arange(5.0) + trial})


def same(one, other):
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture
def made():
    """Count how often each trial's update is made, in so much room."""

    class Counted(Kept):
        count = 0

        def update(self, trial):
            def make():
                self.count += 1
                return update_of(trial)

            return self.made((trial, 0), make)

    return lambda updates: Counted(updates * update_of(0).nbytes)


def test_update_in_a_file_is_the_same_and_can_be_written_to():
    update = update_of(1)
    filed = in_file(update)
    assert same(filed, update)
    filed["bias"].zero_()
    assert not filed["bias"].any()
    assert same(update, update_of(1))


def test_file_has_no_name_and_goes_with_its_update(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    filed = in_file(update_of(1))
    assert not list(tmp_path.iterdir())
    freed = weakref.ref(filed)
    gc.disable()
    try:
        del filed
        assert freed() is None
    finally:
        gc.enable()


def test_dear_updates_without_room_in_memory_are_made_once(made, monkeypatch):
    monkeypatch.setattr(kept, "_DEAR", float("inf"))
    round_ = made(2)
    for _ in range(3):
        assert all(same(round_.update(trial), update_of(trial)) for trial in range(5))
    assert round_.count == 5


def test_cheap_updates_without_room_in_memory_are_made_again(made, monkeypatch):
    monkeypatch.setattr(kept, "_DEAR", 0)
    round_ = made(2)
    for _ in range(2):
        assert all(same(round_.update(trial), update_of(trial)) for trial in range(5))
    assert round_.count == 9  # the first of all is still there


def test_dear_updates_that_no_other_attack_asks_for_are_not_put_in_files(made, monkeypatch):
    monkeypatch.setattr(kept, "_DEAR", float("inf"))
    round_ = made(0)
    assert round_.update(0) is round_.update(0)
    round_.update(1)
    assert round_.get((0, 0)) is None


def test_dear_updates_are_made_again_where_the_disk_is_full(made, monkeypatch):
    monkeypatch.setattr(kept, "_DEAR", float("inf"))
    full = type("Full", (), {"f_bavail": 0, "f_frsize": 4096})
    monkeypatch.setattr("os.statvfs", lambda _path: full)
    round_ = made(1)
    for trial in (0, 1, 0):
        assert same(round_.update(trial), update_of(trial))
    assert round_.count == 3
