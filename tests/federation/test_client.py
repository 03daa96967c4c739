import pytest
import torch
from torch.nn import functional

from benchmark.contract import ImageBatch, Update
from benchmark.federation import fedsgd

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
