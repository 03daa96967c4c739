import pytest
import torch

from benchmark.api import LocalTraining
from benchmark.federation import Client, DefendedRound, Round, fedsgd
from benchmark.seeds import PUBLIC, Key
from submissions.defenses.dropout.defense import Dropout


@pytest.fixture
def plain(quick):
    return quick("quick_digits_b").round


def test_rate_of_zero_sends_the_gradient(plain):
    sent = DefendedRound(plain, Dropout(rate=0), "dropout").update(0)
    assert all(torch.equal(sent[name], each) for name, each in plain.update(0).items())


def test_units_are_dropped_at_the_rate_and_the_rest_scaled_to_the_same_mean(secret):
    units = torch.ones(100, 50, 40)
    sent = Dropout(rate=0.3)._dropped(units, secret)
    assert (sent == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
    assert sent.mean().item() == pytest.approx(1, abs=0.01)


def test_update_is_the_gradient_behind_masks_that_a_victim_of_no_dropout_forgets(plain):
    victim, truth = plain.victim, plain.truth(0)
    sent = Dropout(0.3).compute_update(
        truth, victim, lambda batch: fedsgd(victim, batch), PUBLIC.draws("masks")
    )
    assert any(not torch.equal(sent[name], each) for name, each in plain.update(0).items())
    after = fedsgd(victim, truth)
    assert all(torch.equal(after[name], each) for name, each in plain.update(0).items())


def test_hidden_units_of_every_block_are_dropped(plain):
    """A unit of an MLP that is dropped in every token has a row without gradient."""
    victim, truth = plain.victim, plain.truth(0)
    sent = Dropout(0.9).compute_update(
        truth, victim, lambda batch: fedsgd(victim, batch), PUBLIC.draws("masks")
    )
    for block in range(4):
        rows = sent[f"blocks.{block}.mlp.fc1.weight"]
        assert (rows == 0).all(1).any()
        assert (plain.update(0)[f"blocks.{block}.mlp.fc1.weight"] != 0).any(1).all()


def test_masks_are_of_the_key(plain):
    sent = [
        DefendedRound(plain, Dropout(0.3), "dropout", key).update(0)["pos_embed"]
        for key in (PUBLIC, PUBLIC, Key(b"another"))
    ]
    assert torch.equal(sent[0], sent[1])
    assert not torch.equal(sent[0], sent[2])


def test_each_local_step_has_masks_of_its_own(plain):
    """At a rate of training that moves nothing, two steps of one batch differ by masks alone."""
    client = Client(local=LocalTraining(steps=2, batch_size=1, rate=1e-30))
    seen = []

    class Kept(Dropout):
        def compute_update(self, batch, model, gradient, draws):
            seen.append(super().compute_update(batch, model, gradient, draws))
            return seen[-1]

    local = Round(plain.name, plain.seed, plain.victim, plain.truths, client)
    DefendedRound(local, Kept(0.3), "dropout").update(0)
    one, other = seen
    assert not torch.equal(one["pos_embed"], other["pos_embed"])
