import pytest
import torch
from torch.nn import functional

from benchmark.contract import ImageBatch, LocalTraining, Update
from benchmark.federation import Client, fedsgd

VICTIMS = [
    {"architecture": "april_a", "width": 32, "depth": 2},
    {"architecture": "april_b", "width": 32, "depth": 1, "position": "sincos_2d"},
    {"architecture": "timm/deit_tiny_patch16_224", "size": 28, "patch": 7, "depth": 1},
]


@pytest.fixture(params=VICTIMS, ids=lambda spec: spec["architecture"])
def victim(request, make_victim):
    return make_victim(**request.param)


@pytest.fixture
def batch(draw):
    return ImageBatch(torch.rand(3, 1, 28, 28, generator=draw), torch.tensor([3, 0, 3]))


def test_update_is_the_gradient_that_a_backward_pass_leaves(victim, batch):
    update = fedsgd(victim, batch)
    assert all(weight.grad is None for weight in victim.parameters())
    functional.cross_entropy(victim(batch.images), batch.labels).backward()
    assert list(update) == list(victim.weights())
    for name, weight in victim.weights().items():
        torch.testing.assert_close(update[name], weight.grad)
        assert update[name].dtype == torch.float32
        assert not update[name].requires_grad


def test_update_of_a_batch_is_the_mean_of_its_images(victim, batch):
    update = fedsgd(victim, batch)
    alone = [
        fedsgd(victim, ImageBatch(batch.images[i : i + 1], batch.labels[i : i + 1]))
        for i in range(3)
    ]
    mean = Update({name: torch.stack([one[name] for one in alone]).mean(0) for name in update})
    for name in update:
        torch.testing.assert_close(update[name], mean[name], rtol=1e-4, atol=1e-6)


def test_client_leaves_victim_batch_and_mode_as_they_are(victim, batch):
    before = [tensor._version for tensor in (*victim.parameters(), batch.images, batch.labels)]
    fedsgd(victim, batch)
    assert before == [t._version for t in (*victim.parameters(), batch.images, batch.labels)]
    assert not victim.training


def updated(client, victim, batch, seed=0):
    draws = torch.Generator().manual_seed(seed)
    return client.update(victim, batch, fedsgd, draws)


def close(one, other, share):
    """Tell whether two updates differ by a share of their norm at most."""
    return Update({n: one[n] - other[n] for n in one}).norm() <= share * other.norm()


def test_one_gradient_is_what_a_client_without_training_sends_to_the_bit(victim, batch):
    plain = fedsgd(victim, batch)
    for client in (Client(), Client(users=3)):
        sent = updated(client, victim, batch)
        assert all(torch.equal(sent[name], plain[name]) for name in plain)


def test_one_local_step_on_the_whole_batch_moves_weights_by_the_gradient(victim, batch):
    sent = updated(Client(local=LocalTraining(1, 3, 0.1)), victim, batch)
    assert close(sent, fedsgd(victim, batch), 1e-4)  # float32 weights keep no more of it


@pytest.mark.parametrize(("steps", "each"), [(5, 3), (4, 1), (4, 2)])
def test_local_training_is_that_of_torch_s_own_optimiser(victim, batch, steps, each):
    rate, rows = 0.05, []

    class Watched(type(batch)):
        def select(self, chosen):
            rows.append(chosen)
            return super().select(chosen)

    watched = Watched(batch.images, batch.labels)
    sent = updated(Client(local=LocalTraining(steps, each, rate)), victim, watched)
    rows = rows or [torch.arange(3)] * steps  # a step on the whole batch selects nothing
    start = {name: weight.detach().clone() for name, weight in victim.weights().items()}
    optimiser = torch.optim.SGD(victim.weights().values(), lr=rate)
    for chosen in rows:
        optimiser.zero_grad()
        functional.cross_entropy(victim(batch.images[chosen]), batch.labels[chosen]).backward()
        optimiser.step()
    moved = {
        name: (start[name] - w.detach()) / rate / steps for name, w in victim.weights().items()
    }
    assert close(sent, Update(moved), 1e-3)


def test_an_epoch_sees_every_example_once_and_the_next_in_another_order(make_victim, draw):
    victim = make_victim(width=32, depth=1)
    batch = ImageBatch(torch.rand(8, 1, 28, 28, generator=draw), torch.arange(8))
    seen = []

    def gradient(model, part):
        seen.append(part.labels)
        return fedsgd(model, part)

    draws = torch.Generator().manual_seed(0)
    Client(local=LocalTraining(6, 3, 0.1)).update(victim, batch, gradient, draws)
    assert [len(labels) for labels in seen] == [3, 3, 2, 3, 3, 2]
    first, second = torch.cat(seen[:3]), torch.cat(seen[3:])
    assert first.sort().values.tolist() == second.sort().values.tolist() == list(range(8))
    assert first.tolist() != second.tolist()


def test_an_aggregate_is_the_mean_of_its_users_updates(victim, batch):
    local = LocalTraining(3, 1, 0.05)
    sent = updated(Client(users=3, local=local), victim, batch)
    users = [
        updated(Client(local=local), victim, batch.select(torch.tensor([row]))) for row in range(3)
    ]
    mean = Update({name: torch.stack([one[name] for one in users]).mean(0) for name in sent})
    assert close(sent, mean, 1e-6)


def test_local_training_leaves_the_victim_as_it_is(victim, batch):
    before = {name: weight.detach().clone() for name, weight in victim.weights().items()}
    updated(Client(local=LocalTraining(2, 3, 0.1)), victim, batch)
    assert all(torch.equal(weight, before[name]) for name, weight in victim.weights().items())
