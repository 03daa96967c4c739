import copy

import pytest
import torch

from benchmark.federation import DefendedRound
from submissions.defenses.censor.defense import Censor, _Place


@pytest.fixture
def defended(quick):
    def make(defense, protocol="quick_digits_b"):
        return DefendedRound(quick(protocol).round, defense, "censor")

    return make


def candidate(own, draws, reading="printed"):
    direction = torch.empty_like(own)
    _Place(own, torch.empty(own.numel()), reading).draw(direction, draws)
    return direction


def cosine(one, other):
    one, other = one.double().flatten(), other.double().flatten()
    return (one @ other / (one.norm() * other.norm())).item()


def test_printed_gradient_is_orthogonal_to_the_own_and_of_its_norm(defended):
    made = defended(Censor(candidates=2))
    for name, own in made.plain.update(0).items():
        sent = made.update(0)[name]
        assert cosine(sent, own) == pytest.approx(0, abs=1e-5)
        assert sent.norm().item() == pytest.approx(own.norm().item(), rel=1e-4)


def test_released_projection_is_not_orthogonal_but_to_a_gradient_of_norm_one(secret):
    direction = torch.linspace(1, 2, 50)
    unit = direction / direction.norm()
    for factor in (0.01, 100.0):
        found = candidate(factor * unit, secret, "released")
        assert abs(cosine(found, unit)) > 0.01
    assert cosine(candidate(unit, secret, "released"), unit) == pytest.approx(0, abs=1e-6)


def loss_after(made, update, rate):
    twin = copy.deepcopy(made.model).double().requires_grad_(False)
    for name, weight in twin.weights().items():
        weight -= rate * update[name].double()
    return float(twin.loss(made.plain.truth(0)))


@pytest.mark.parametrize("protocol", ["quick_digits_b", "quick_pydoc_transformer3"])
def test_best_of_many_candidates_leaves_less_loss_than_the_first(defended, protocol):
    one, many = (defended(Censor(candidates=n, rate=0.1), protocol) for n in (1, 4))
    assert loss_after(many, many.update(0), 0.1) <= loss_after(one, one.update(0), 0.1)


def test_released_code_sends_the_gradient_itself_where_no_candidate_lowers_the_loss(defended):
    made = defended(Censor("released", candidates=1, rate=1e3))  # so far off all is worse
    assert all(torch.equal(made.update(0)[name], own) for name, own in made.plain.update(0).items())


@pytest.mark.parametrize("reading", ["printed", "released"])
def test_tensor_without_gradient_stays_without(secret, reading):
    assert not candidate(torch.zeros(3, 2), secret, reading).any()


def test_single_entry_has_nothing_orthogonal_to_it(secret):
    assert not candidate(torch.tensor([2.0]), secret).any()
