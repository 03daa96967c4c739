"""`gradleak train`: from a protocol to weights in the cache, and to a run that finds them."""

import hashlib
import json

import pytest
import torch
import yaml
from safetensors.torch import load_file

from benchmark.protocol import load_protocol
from benchmark.records import read_folder
from benchmark.tracks import load_setting

VICTIM = {"architecture": "april_b", "width": 32, "depth": 1, "patch": 4}
TRAINED = {**VICTIM, "trained_on": "digits", "epochs": 1}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("GRADLEAK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/weights"


@pytest.fixture
def file(tiny):
    return tiny(victim=TRAINED)


def setting(path):
    return load_setting(load_protocol(str(path)), None, torch.device("cpu"))


def test_run_without_the_weights_is_unavailable_with_the_command(file, gradleak, tmp_path, cache):
    results = tmp_path / "results"
    ended = gradleak("run", file, "--attack", "random", "--defense", "none", "--results", results)
    (record,) = read_folder(results).records
    assert ended.code == 0
    assert (record.status, record.trial) == ("unavailable", None)
    assert record.reason == (
        "april_b trained on digits, epochs: 1, is not available: tried "
        f"{setting(file).stage(0).file}; get it by: gradleak train tiny.yaml"
    )
    assert not cache.exists()


def test_training_is_told_in_a_line_and_its_run_uses_the_weights(file, gradleak, tmp_path):
    results, made = tmp_path / "results", setting(file).stage(0).file
    ended = gradleak("train", file)
    assert ended.code == 0
    (line,) = ended.out.splitlines()
    assert line.startswith("seed 0: test accuracy ")
    assert line.endswith(f"% of 797 images: {made}")
    gradleak("run", file, "--attack", "random", "--defense", "none", "--results", results)
    assert [record.status for record in read_folder(results).records] == ["completed"] * 3
    frozen = json.loads((results / "tiny/protocol.json").read_text())
    assert frozen["weights_seed_0"] == hashlib.sha256(made.read_bytes()).hexdigest()
    sent = setting(file).round(0).victim.network.state_dict()
    assert all(torch.equal(sent[name], tensor) for name, tensor in load_file(made).items())


def test_training_begins_with_the_weights_of_the_untrained_victim(file, tiny):
    plain = setting(tiny(victim=VICTIM)).round(0).victim.network.state_dict()
    start = setting(file).stage(0).untrained(None).network.state_dict()
    assert plain.keys() == start.keys()
    assert all(torch.equal(plain[name], start[name]) for name in plain)


def test_weights_are_made_once_a_seed(file, gradleak, cache):
    gradleak("train", file, "--seeds", "1")
    (made,) = cache.iterdir()
    before = made.stat()
    ended = gradleak("train", file, "--seeds", "1,2")
    assert ended.out.count("already there") == 1
    assert (made.stat().st_mtime_ns, made.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert len(list(cache.iterdir())) == 2


def test_protocol_without_a_stage_and_one_of_text_are_refused(tiny, gradleak):
    for name in (tiny(), "quick_pydoc_transformer3"):
        ended = gradleak("train", name)
        assert ended.code == 2
        assert ended.err.count("\n") == 1
        assert "states no training stage; wanted victim.trained_on and victim.epochs" in ended.err


def test_cache_that_cannot_be_written_is_one_line(file, gradleak, tmp_path, monkeypatch):
    (tmp_path / "taken").touch()
    monkeypatch.setenv("GRADLEAK_CACHE", str(tmp_path / "taken"))
    ended = gradleak("train", file)
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "cannot be written: Not a directory" in ended.err


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"victim": {**VICTIM, "trained_on": "digits"}}, "trained_on and epochs stand together"),
        ({"victim": {**VICTIM, "epochs": 2}}, "trained_on and epochs stand together"),
        ({"victim": {**TRAINED, "epochs": 0}}, "victim.epochs: "),
        ({"victim": {**TRAINED, "trained_on": "mnist"}}, "trained_on mnist: wanted digits"),
        ({"victim": {**TRAINED, "checkpoint": "net.pt"}}, "a checkpoint is trained already"),
        ({"victim": TRAINED, "iip_embedding": TRAINED}, "trained_on is of the victim alone"),
        (
            {
                "data": {"name": "imagenet", "size": 8},
                "victim": {**TRAINED, "trained_on": "imagenet"},
            },
            "its content is the copy's",
        ),
    ],
)
def test_stage_that_cannot_be_is_refused_in_one_line(tiny, gradleak, changes, said):
    ended = gradleak("train", tiny(**changes))
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert said in ended.err


def test_stage_is_part_of_the_protocols_digest_and_is_none_without_one(tiny):
    plain, trained = (load_protocol(str(tiny(victim=one))) for one in (VICTIM, TRAINED))
    assert plain.digest != trained.digest
    said = [plain.frozen()["victim"][key] for key in ("trained_on", "epochs")]
    assert said == [None, None]
    assert yaml.safe_load(yaml.safe_dump(trained.frozen()))["victim"]["epochs"] == 1
