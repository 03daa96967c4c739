import dataclasses
import hashlib

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError
from PIL import Image

from benchmark.data import CATALOGUE, images, status
from benchmark.data.status import states


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """No mirror, an empty cache of the hub, and a network that must not be asked."""

    def cached(*_, local_files_only=False, **__):
        assert local_files_only, "status reached for the network"
        raise LocalEntryNotFoundError("not cached")

    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", cached)
    monkeypatch.setattr(huggingface_hub, "get_session", lambda: pytest.fail("network"))
    images._load.cache_clear()


def state(name, mirror):
    return {found.found.name: found for found in states(mirror)}[name]


def only(monkeypatch, *names):
    """Let the catalogue hold these sets alone."""
    monkeypatch.setattr(status, "CATALOGUE", {name: CATALOGUE[name] for name in names})


def test_sets_of_dependencies_are_here_whole_and_the_others_are_not(monkeypatch):
    found = {each.found.name: each for each in states(None)}
    assert found.keys() == CATALOGUE.keys()
    for name in ("digits", "photographs", "faces"):
        assert (found[name].tier, found[name].digest) == ("embedded", "ok")
        assert found[name].size > 10_000
    for name in ("mnist", "cifar10", "orl_faces", "imagenet", "ms_celeb_1m"):
        assert found[name].tier is None


def test_set_of_the_mirror_is_found_and_its_digest_told(tmp_path, monkeypatch):
    only(monkeypatch, "orl_faces")
    (tmp_path / "faces").mkdir()
    path = tmp_path / "faces/orl_faces.npz"
    np.savez(path, images=np.zeros((20, 112, 92), np.uint8), labels=np.repeat([0, 1], 10))
    found = state("orl_faces", tmp_path)
    assert (found.tier, found.where, found.digest) == ("mirror", str(path), "differs")
    assert found.size == path.stat().st_size
    unlisted = dataclasses.replace(CATALOGUE["orl_faces"], digest={})
    monkeypatch.setattr(status, "CATALOGUE", {"orl_faces": unlisted})
    assert state("orl_faces", tmp_path).digest == "not checked"
    path.write_bytes(b"")
    broken = state("orl_faces", tmp_path)
    assert broken.digest == "differs"
    assert "wanted an npz file" in broken.where


def test_command_prints_a_row_for_each_set_with_its_terms(gradleak, monkeypatch):
    only(monkeypatch, "digits", "imagenet")
    ended = gradleak("data", "status")
    assert (ended.code, ended.err) == (0, "")
    head, _, digits, imagenet = ended.out.splitlines()
    assert head.split("  ")[0] == "data set"
    assert digits.split()[:2] == ["digits", "embedded"]
    assert "ok" in digits.split()
    assert "CC BY 4.0" in digits
    assert "not here" in imagenet
    assert "gated: accept the terms" in imagenet
    assert "none in the catalogue" in imagenet


@pytest.mark.parametrize(
    ("sums", "said"),
    [
        (None, "not checked; none in the catalogue"),
        ("digest", "ok by the copy's SHA256SUMS; none in the catalogue"),
        ("0" * 64, "differs; none in the catalogue"),
    ],
)
def test_set_whose_content_is_the_copys_says_what_it_was_held_against(
    tmp_path, gradleak, monkeypatch, sums, said
):
    only(monkeypatch, "imagenet")
    folder = tmp_path / "imagenet/images"
    folder.mkdir(parents=True)
    lines = []
    for number in range(10):
        path = folder / f"n01440764_{number}.JPEG"
        Image.fromarray(np.full((8, 8, 3), number, np.uint8)).save(path)
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if sums == "digest" else sums
        lines.append(f"{digest}  images/{path.name}\n")
    if sums:
        (tmp_path / "imagenet/SHA256SUMS").write_text("".join(lines))
    assert said in gradleak("data", "status", "--data", tmp_path).out


@pytest.mark.parametrize("name", ["mnist", "cifar10", "orl_faces", "imagenet"])
def test_mirror_of_the_user_is_whole(user_mirror, monkeypatch, name):
    mirror = user_mirror({"orl_faces": "faces"}.get(name, name))
    only(monkeypatch, name)
    found = state(name, mirror)
    assert (found.tier, found.digest) == ("mirror", "ok")
