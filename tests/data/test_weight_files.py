import shlex

import pytest
import torch

from benchmark.data import find_weights
from benchmark.errors import DataUnavailable

URL = "https://example.org/net.pth"


@pytest.fixture(autouse=True)
def cached(tmp_path, monkeypatch):
    """The place of the file in torch hub's cache, empty at first."""
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    (tmp_path / "hub/checkpoints").mkdir(parents=True)
    return tmp_path / "hub/checkpoints/net.pth"


def test_mirror_is_preferred_to_the_cache(tmp_path, cached):
    cached.touch()
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights/net.pth").touch()
    assert find_weights("net.pth", URL, tmp_path) == tmp_path / "weights/net.pth"


def test_cache_serves_what_the_mirror_lacks(tmp_path, cached):
    cached.touch()
    assert find_weights("net.pth", URL, tmp_path) == cached


def test_missing_weights_are_answered_with_the_command_that_puts_them_in_the_cache(
    tmp_path, cached
):
    with pytest.raises(DataUnavailable) as raised:
        find_weights("net.pth", URL, tmp_path)
    assert raised.value.tried == [str(tmp_path / "weights/net.pth"), str(cached)]
    assert shlex.split(raised.value.command)[-2:] == [str(cached), URL]
