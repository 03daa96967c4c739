import pytest
import torch

from benchmark.contract import Defense, ImageBatch, Update
from benchmark.data import load_images
from benchmark.errors import RefusedError
from benchmark.protocol import Training
from benchmark.registry import Registry
from benchmark.utility.federated import shares, train
from benchmark.victims import accuracy

SETTING = {"clients": 3, "rounds": 20, "batch_size": 8, "rates": (0.03,)}
REGISTRY = Registry()


@pytest.fixture(scope="module")
def data():
    digits = load_images("digits", "train", 16)
    return ImageBatch(digits.images[:200], digits.labels[:200])


@pytest.fixture
def victim(make_victim):
    return make_victim(size=16, patch=4, width=32, depth=1)


@pytest.fixture
def trained(victim, data):
    def run(defense="none", rate=0.03, seed=0, **changes):
        made = REGISTRY.find("defense", defense)[0].build() if isinstance(defense, str) else defense
        training = Training(**SETTING | changes)
        given = {"rate": rate, "name": "here", "seed": seed}
        return train(victim, made, "label", data, training, **given)

    return run


def right(model, data):
    return accuracy(model, data.images, data.labels)


def weights(model):
    return {name: weight.detach() for name, weight in model.weights().items()}


def test_training_tells_more_labels_than_the_victim_did_and_leaves_it_as_it_is(
    victim, trained, data
):
    before = weights(victim)
    assert right(trained(rounds=60).model, data) > right(victim, data) + 0.3
    assert all(torch.equal(weight, before[name]) for name, weight in weights(victim).items())


def test_encrypted_training_ends_where_plain_training_does(trained, data):
    plain, encrypted = trained().model, trained("model_encryption").model
    for name, weight in weights(plain).items():
        torch.testing.assert_close(weights(encrypted)[name], weight, rtol=1e-3, atol=1e-5)
    assert right(encrypted, data) == right(plain, data)


def test_one_client_without_momentum_is_gradient_descent_on_its_batches(victim, data, trained):
    seen = []

    class Watch(Defense):
        def compute_update(self, batch, model, gradient, draws):
            seen.append(batch)
            return gradient(batch)

    found = trained(Watch(), clients=1, rounds=3, momentum=0.0).model
    optimiser = torch.optim.SGD(victim.weights().values(), lr=0.03)
    for batch in seen:
        optimiser.zero_grad()
        victim.loss(batch).backward()
        optimiser.step()
    for name, weight in weights(victim).items():
        torch.testing.assert_close(weights(found)[name], weight)


def test_what_is_withheld_is_not_trained(victim, trained):
    found = weights(trained("withhold_position").model)
    assert torch.equal(found["pos_embed"], weights(victim)["pos_embed"])
    assert not torch.equal(found["head.weight"], weights(victim)["head.weight"])


def test_bytes_are_those_of_one_client_s_updates(victim, trained):
    numbers = sum(weight.numel() for weight in victim.weights().values())
    assert trained(rounds=2).sent == 2 * 4 * numbers
    assert trained("half_precision", rounds=2).sent == 2 * 2 * numbers
    assert trained("sign_update", rounds=2).sent < 2 * 4 * numbers / 31
    assert trained("gradient_pruning,share=0.99", rounds=2).sent < 0.05 * 2 * 4 * numbers


def test_same_seed_trains_the_same_weights_and_another_others(trained):
    first, again, other = (weights(trained("gaussian_noise", seed=s).model) for s in (0, 0, 1))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("split", [{}, {"split": "dirichlet", "concentration": 0.05}])
def test_shares_are_disjoint_whole_and_never_empty(data, split):
    parts = shares(data, Training(**SETTING | split), 0, "here")
    assert len(parts) == 3
    assert all(len(part) for part in parts)
    assert torch.cat(parts).sort().values.tolist() == list(range(200))


def test_dirichlet_shares_are_skewed_by_class(data):
    def skew(**split):
        parts = shares(data, Training(**SETTING | split), 0, "here")
        counts = torch.stack([torch.bincount(data.labels[part], minlength=10) for part in parts])
        return (counts.float() / counts.sum(0)).amax(0).mean()

    assert skew(split="dirichlet", concentration=0.05) > skew() + 0.2


def test_update_of_another_kind_of_defense_reaches_the_server(trained, victim):
    class Zero(Defense):
        def protect_update(self, update, model, draws):
            return Update({name: torch.zeros_like(tensor) for name, tensor in update.items()})

    found = weights(trained(Zero()).model)
    assert all(torch.equal(weight, found[name]) for name, weight in weights(victim).items())


def test_model_that_clients_refuse_is_trained_no_further(trained, victim):
    """As one that diverged: its rows are alike then, or not finite."""

    class Refusing(Defense):
        def compute_update(self, batch, model, gradient, draws):
            raise RefusedError("model refused")

    found = trained(Refusing())
    assert found.sent == 0
    assert all(torch.equal(w, weights(found.model)[n]) for n, w in weights(victim).items())
    assert trained("parameter_inspection", rate=1e6).sent > 0


def test_jigsaw_trains_the_shared_position_and_what_localises(victim, trained, data):
    found = trained("mjp,gamma=0.5", rounds=60)
    moved = weights(found.model)
    assert moved["unknown_position"].shape == (1, 1, 32)
    twin = trained("mjp,gamma=0.5", rounds=1).model
    for name in ("unknown_position", "pos_embed", "localiser.0.weight"):
        assert not torch.equal(moved[name], weights(twin)[name])
    assert right(found.model, data) > right(victim, data) + 0.3
