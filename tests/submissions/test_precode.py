import pytest
import torch

from benchmark.federation import DefendedRound
from benchmark.running.exchange import load_model, save_model
from benchmark.seeds import PUBLIC, Key
from submissions.defenses.precode.defense import Precode


@pytest.fixture
def plain(quick):
    return quick("quick_digits_b").round


@pytest.fixture
def defended(plain):
    return DefendedRound(plain, Precode(), "precode")


def test_bottleneck_is_all_that_is_added(defended, plain):
    added = defended.model.weights().keys() - plain.victim.weights().keys()
    layers = {f"bottleneck.{part}" for part in ("encoder", "decoder")}
    assert added == {f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias")}
    assert defended.model.weights()["bottleneck.encoder.weight"].shape == (512, 384)
    for name, weight in plain.victim.weights().items():
        assert torch.equal(defended.model.weights()[name], weight)


def test_gradients_below_the_head_change_with_the_draw(plain):
    sent = [
        DefendedRound(plain, Precode(), "precode", key).update(0)
        for key in (PUBLIC, PUBLIC, Key(b"another"))
    ]
    for name in sent[0]:
        assert torch.equal(sent[0][name], sent[1][name])
    assert not torch.allclose(sent[0]["pos_embed"], sent[2]["pos_embed"], rtol=0.01)


def test_server_reads_the_mean_and_draws_nothing(defended, plain):
    images = plain.truth(0).images
    defended.update(0)
    assert torch.equal(defended.model(images), defended.model(images))
    assert not torch.equal(defended.model(images), plain.victim(images))


def test_weight_of_the_divergence_counts_in_the_loss(plain):
    heavy = DefendedRound(plain, Precode(weight=1.0), "precode")
    free = DefendedRound(plain, Precode(weight=0.0), "precode")
    truth = plain.truth(0)
    assert heavy.model.loss(truth) > free.model.loss(truth)
    bias = "bottleneck.encoder.bias"
    assert not torch.allclose(heavy.update(0)[bias], free.update(0)[bias])


def test_victim_crosses_into_the_sandbox(defended, plain, tmp_path):
    save_model(defended.model, tmp_path / "model")
    there = load_model(tmp_path / "model", torch.device("cpu"))
    images = plain.truth(0).images
    assert torch.equal(there(images), defended.model(images))
