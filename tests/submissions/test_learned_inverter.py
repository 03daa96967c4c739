"""From a training by command to a run that finds the inverter, and what it then tells."""

import statistics
from pathlib import Path

import pytest
import torch
import yaml

from benchmark.conformance.attacks import Asked
from benchmark.contract import Reconstruction
from benchmark.data import load_images
from benchmark.protocol import load_protocol
from benchmark.registry import Registry
from benchmark.running.sandbox import Sandbox
from benchmark.tracks import load_setting

PROTOCOL = str(Path(__file__).with_name("inverter.yaml"))
ATTACK = Registry().find("attack", "learned_inverter")[0]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("GRADLEAK_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def rough(cache):
    """A protocol whose inverter is trained for an instant: enough where any weights do."""
    said = yaml.safe_load(Path(PROTOCOL).read_text(encoding="utf-8"))
    said |= {"name": "rough", "inverter": {"hidden": 32, "bins": 32, "examples": 20, "epochs": 1}}
    path = cache / "rough.yaml"
    path.write_text(yaml.safe_dump(said), encoding="utf-8")
    return str(path)


@pytest.fixture
def trained(cache, rough, gradleak, quick):
    """Return the bench once the inverter of a defense is there."""

    def make(defense, protocol=rough):
        ended = gradleak("train", protocol, "--inverter", defense)
        assert ended.code == 0
        return quick(protocol), ended.out

    return make


def median(records):
    assert {record.status for record in records} == {"completed"}
    return statistics.median(record.metrics["psnr"] for record in records)


def test_a_digit_s_label_alone_tells_as_much_as_docs_defenses_md_says():
    protocol = load_protocol("digits_small_b_inverter")
    setting = load_setting(protocol, None, torch.device("cpu"))
    public = load_images(protocol.data.entry, "train", protocol.data.size, None)
    digits = range(10)
    means = torch.stack([public.images[public.labels == digit].mean(dim=0) for digit in digits])
    scores = [
        setting.score(truth, Reconstruction(images=means[truth.labels]))["psnr"]
        for truth in setting.round(0).truths
    ]
    assert statistics.median(scores) == pytest.approx(15.5, abs=0.05)


def test_run_without_the_inverter_is_unavailable_with_the_command(tmp_path, monkeypatch, quick):
    monkeypatch.setenv("GRADLEAK_CACHE", str(tmp_path))
    (record,) = quick(PROTOCOL).run("learned_inverter", "gaussian_noise,scale=0.5")
    assert (record.status, record.trial) == ("unavailable", None)
    command = "gradleak train inverter.yaml --inverter gaussian_noise,scale=0.5 --seeds 0"
    assert record.reason.endswith(f"get it by: {command}")
    assert not any(tmp_path.iterdir())


def test_protocol_that_grants_none_is_told(quick, gradleak):
    (record,) = quick("quick_digits_b").run("learned_inverter")
    assert record.status == "not_applicable"
    assert record.reason == "needs trained_inverter, which the protocol does not grant"
    ended = gradleak("train", "quick_digits_b", "--inverter", "none")
    assert ended.code == 2
    assert "quick_digits_b grants no trained_inverter; wanted the key inverter" in ended.err


@pytest.mark.parametrize(
    "defense", ["gaussian_noise,scale=0.1", pytest.param("sign_update", marks=pytest.mark.slow)]
)
def test_inverter_tells_more_than_the_mean_of_the_public_split(trained, defense):
    bench, said = trained(defense, PROTOCOL)
    assert "dB on held-out public images" in said or "already there" in said
    found = median(bench.run("learned_inverter", defense))
    assert found > median(bench.run("prior_only", defense)) + 0.5


def test_inverter_is_made_once(trained, cache):
    trained("none")
    made = {file: file.stat().st_mtime_ns for file in cache.rglob("*.safetensors")}
    assert "already there" in trained("none")[1]
    assert {file: file.stat().st_mtime_ns for file in cache.rglob("*.safetensors")} == made


def test_attack_keeps_the_contract(trained, seen_by):
    bench, _ = trained("none")
    stack = seen_by(bench, "learned_inverter")
    asked = Asked(ATTACK, stack)
    assert [row for row in asked.rows() if row.answer == "fail"] == []
    assert [answer.images.shape for answer in asked.answers] == [(1, 1, 8, 8)] * 2


def test_isolated_attack_has_the_inverter_too(trained):
    bench, _ = trained("none")
    with Sandbox(torch.device("cpu")) as sandbox:
        there = bench.run("learned_inverter", worker=sandbox, trials=2)
    here = bench.run("learned_inverter", trials=2)
    assert [record.metrics for record in there] == [record.metrics for record in here]


def test_inverter_is_of_the_defense_its_victim_and_its_versions(quick):
    setting = quick(PROTOCOL).setting
    find = Registry().find
    stages = [
        setting.inverter_stage(seed, find("defense", label)[0])
        for seed, label in [(0, "none"), (1, "none"), (0, "sign_update"), (0, "precode,width=8")]
    ]
    assert len({stage.digest for stage in stages}) == 4


def test_victim_that_is_hardened_is_the_one_that_the_inverter_was_trained_on(trained, seen_by):
    """What harden draws is public, and the same at training as in the run."""
    bench, _ = trained("precode,width=8")
    stack = seen_by(bench, "learned_inverter", "precode,width=8")
    shape = stack[0].trained_inverter.shape
    assert list(shape.entries) == list(stack[0].update)
    assert "bottleneck.encoder.weight" in shape.entries


def test_updates_are_drawn_by_a_key_of_the_attacker_s_own(quick):
    from benchmark.running.invert import _Source

    bench = quick(PROTOCOL)
    defense = Registry().find("defense", "gaussian_noise,scale=0.5")[0]
    source = _Source(bench.protocol, bench.round, defense, bench.setting.data)
    truth = bench.round.truth(0)
    one, other = (
        source._update(bench.round.victim, defense.build(), truth, number) for number in (0, 1)
    )
    seen = bench.defended(bench.cell("prior_only", "gaussian_noise,scale=0.5")).update(0)
    assert not torch.equal(one["pos_embed"], other["pos_embed"])
    assert not torch.equal(one["pos_embed"], seen["pos_embed"])
