"""What a server that knows the noise reads beneath it."""

import pytest
import torch

from benchmark.errors import NotApplicable
from submissions.attacks.decepticon_denoised.attack import DecepticonDenoised
from submissions.attacks.decepticon_denoised.noise import noise_of, noise_share


@pytest.fixture(scope="module")
def pydoc(quick):
    return quick("quick_pydoc_transformer3")


def reads(bench, attack, defense):
    (record,) = bench.run(attack, defense, trials=1)
    assert record.status == "completed", record.reason
    return record


def test_noise_is_told_by_what_defenses_say_of_themselves():
    assert noise_share({"name": "clip_and_noise", "norm": 2.0, "noise": 0.002}, 1, 100) == 0.001
    assert noise_share({"name": "dp_sgd", "clip": 2.0, "noise": 0.5}, 4, 100) == 0.125
    assert noise_share({"name": "laplacian_noise", "scale": 0.5}, 1, 100) == 0.05


@pytest.mark.parametrize("said", [{"name": "none"}, {"name": "gaussian_noise", "scale": 0.0}])
def test_where_no_noise_is_described_there_is_none_to_take_off(said):
    with pytest.raises(NotApplicable, match="describes no noise"):
        noise_share(said, 1, 100)


def test_the_norm_sent_tells_the_noise_beneath_it(draw):
    gradient = torch.randn(10000, generator=draw)
    sent = gradient + 0.5 * torch.randn(10000, generator=draw)
    share = 0.5 / float(gradient.norm())
    assert noise_of(share, float(sent.norm()), 10000) == pytest.approx(0.5, rel=0.02)


@pytest.mark.slow
def test_all_that_sends_gradient_is_read_where_the_plain_reading_misses_some(pydoc):
    defense = "clip_and_noise,noise=0.001"
    denoised = reads(pydoc, "decepticon_denoised", defense).metrics["total_accuracy"]
    assert denoised >= 31 / 32
    assert denoised > reads(pydoc, "decepticon,defaults", defense).metrics["total_accuracy"]


def test_nothing_is_vouched_for_beneath_noise(pydoc):
    record = reads(pydoc, "decepticon_denoised", "gaussian_noise,scale=0.1")
    assert record.metrics["certified_share"] == 0


def test_only_the_first_places_send_gradient_where_noise_would_hide_them_all(pydoc, seen_by):
    (seen,) = seen_by(pydoc, "decepticon_denoised", "dp_sgd,noise=0.1", trials=1)
    positions = seen.model.weights()["position_embedding.weight"]
    silent = positions[:32].norm(dim=1) > 100 * positions[0].norm()
    assert not silent[:6].any()  # 100 / (2 log 4096) is 6.01
    assert silent[6:].all()


def test_the_commonest_token_stands_where_noise_leaves_nothing(pydoc):
    hidden = reads(pydoc, "decepticon_denoised", "dp_sgd,noise=100.0").metrics
    assert hidden["total_accuracy"] == reads(pydoc, "prior_only", "none").metrics["total_accuracy"]


@pytest.mark.parametrize(
    ("protocol", "defense", "reason"),
    [
        ("quick_pydoc_transformer3", "none", "the defense describes no noise to take off"),
        ("quick_pydoc_transformer3_batch8", "dp_sgd", "the pursuit reads a lone sequence"),
    ],
)
def test_it_is_not_applicable(quick, protocol, defense, reason):
    (record,) = quick(protocol).run("decepticon_denoised", defense)
    assert (record.status, record.reason) == ("not_applicable", reason)


def test_it_declines_an_update_without_what_it_reads(pydoc, seen_by):
    (seen,) = seen_by(pydoc, "decepticon_denoised", "dp_sgd,noise=0.1", trials=1)
    object.__setattr__(seen, "update", seen.update.without("blocks.1.fc1.bias"))
    with pytest.raises(NotApplicable, match=r"no gradient of blocks\.1\.fc1\.bias"):
        DecepticonDenoised().applies(seen)
