import pytest
import torch

from benchmark.api import ImageBatch
from benchmark.federation import DefendedRound, fedsgd
from submissions.defenses.soteria.defense import Soteria, sensitivity

WIDTH = 32  # of the tiny protocol's victim


@pytest.fixture
def defended(bench):
    def make(defense, batch=1):
        return DefendedRound(bench(federation={"batch_size": batch}).round, defense, "soteria")

    return make


@pytest.mark.parametrize("pruned", [0.4, 0.8])
def test_columns_of_the_head_vanish_and_nothing_else_changes(defended, pruned):
    made = defended(Soteria(pruned))
    sent, whole = made.update(0), made.plain.update(0)
    gone = (sent["head.weight"] == 0).all(0)
    assert gone.sum() == round(pruned * WIDTH)
    assert torch.equal(sent["head.weight"][:, ~gone], whole["head.weight"][:, ~gone])
    assert all(torch.equal(sent[name], whole[name]) for name in whole if name != "head.weight")


def test_pruning_nothing_sends_the_gradient(defended):
    made = defended(Soteria(pruned=0))
    assert all(
        torch.equal(made.update(0)[name], each) for name, each in made.plain.update(0).items()
    )


def test_entries_of_least_sensitivity_are_those_pruned(make_victim, draw):
    """By finite differences of the representation, on a victim of four entries."""
    victim = make_victim(size=8, patch=4, width=4, depth=1).double()
    image = torch.rand(1, 1, 8, 8, generator=draw, dtype=torch.float64)
    read = []
    victim.network.head.register_forward_pre_hook(lambda _, given: read.append(given[0][0]))
    step = 1e-5
    moved = image + step * torch.eye(64, dtype=torch.float64).view(64, 1, 8, 8)
    for each in (image, *moved.split(1)):
        victim(each)
    here = read[0]
    jacobian = torch.stack([(there - here) / step for there in read[1:]])
    found = sensitivity(victim, ImageBatch(image, torch.tensor([3])))
    torch.testing.assert_close(found, jacobian.norm(dim=0) / here.abs(), rtol=1e-3, atol=1e-6)


def test_each_image_of_a_batch_is_pruned_by_its_own_ratios(defended):
    made = defended(Soteria(0.8), batch=4)
    victim, truth = made.plain.victim, made.plain.truth(0)
    wanted = torch.zeros_like(made.update(0)["head.weight"])
    for one in truth.examples():
        gradient = fedsgd(victim, one)["head.weight"].clone()
        gradient[:, sensitivity(victim, one).argsort()[: round(0.8 * WIDTH)]] = 0
        wanted += gradient / 4
    torch.testing.assert_close(made.update(0)["head.weight"], wanted)
