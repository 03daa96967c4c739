import dataclasses

import datasets
import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from benchmark.data import CATALOGUE, hub
from benchmark.errors import DataUnavailable

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 28, 28), np.uint8)


@pytest.fixture
def parquet(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    rows = {"image": list(PIXELS), "label": [3, 1, 4, 1]}
    path = tmp_path / "test.parquet"
    datasets.Dataset.from_dict(rows, features=features).to_parquet(path)
    return path


def test_file_in_the_cache_is_read_without_the_network(parquet, monkeypatch):
    asked = []

    def cached(repository, file, **options):
        asked.append((repository, file, options["revision"], options["local_files_only"]))
        return str(parquet)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", cached)
    found = CATALOGUE["mnist"]
    pictures = hub.read_hub(found, "test", None)
    assert np.array_equal(pictures.pixels, PIXELS)
    assert pictures.labels.tolist() == [3, 1, 4, 1]
    assert asked == [("ylecun/mnist", found.hub.files["test"], found.hub.revision, True)]


def test_rows_of_the_catalogue_are_taken_in_their_order(parquet, monkeypatch):
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: str(parquet))
    part = dataclasses.replace(CATALOGUE["mnist"].hub, rows={"test": (range(2, 4), range(1))})
    found = dataclasses.replace(CATALOGUE["mnist"], hub=part)
    assert np.array_equal(hub.read_hub(found, "test", None).pixels, PIXELS[[2, 3, 0]])


def test_no_network_is_unavailable_with_a_command_and_no_download_is_begun(monkeypatch):
    begun = []

    def not_cached(*args, local_files_only=False, **options):
        if local_files_only:
            raise LocalEntryNotFoundError("not cached")
        begun.append(args)

    class Dead:
        def head(self, url, timeout):
            assert timeout <= 10
            raise ConnectionError("no route")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", not_cached)
    monkeypatch.setattr(huggingface_hub, "get_session", Dead)
    with pytest.raises(DataUnavailable) as raised:
        hub.read_hub(CATALOGUE["cifar10"], "train", None)
    assert raised.value.tried == ["hub uoft-cs/cifar10 (ConnectionError)"]
    assert raised.value.command.startswith("hf download uoft-cs/cifar10 plain_text/train-")
    assert not begun
