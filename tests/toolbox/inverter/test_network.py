import pytest
import torch

from benchmark.contract import Update
from benchmark.toolbox.inverter import Inverter, InverterShape


@pytest.fixture
def update(draw):
    return Update({"a": torch.randn(30, 10, generator=draw), "b": torch.randn(5, generator=draw)})


def inverter(bins):
    return Inverter(InverterShape({"b": 5, "a": 300}, (2, 1, 4, 4), bins, hidden=8))


def test_small_update_is_read_as_it_is_in_the_order_of_its_entries(update):
    read = inverter(1000).read(update)
    assert torch.equal(read, torch.cat([update["b"], update["a"].flatten()]))


def test_large_update_is_hashed_linearly_and_keeps_inner_products(update, draw):
    made = inverter(64)
    other = Update({name: torch.randn(each.shape, generator=draw) for name, each in update.items()})
    both = Update({name: update[name] + other[name] for name in update})
    torch.testing.assert_close(made.read(both), made.read(update) + made.read(other))
    assert made.read(update).shape == (64,)
    norm = made.read(update).norm().item()
    assert norm == pytest.approx(update.norm(), rel=0.3)  # right in the mean


def test_each_value_goes_into_one_bin_with_a_sign(update):
    made = inverter(64)
    alone = Update({"a": torch.zeros(30, 10), "b": torch.tensor([0, 0, 3.0, 0, 0])})
    assert made.read(alone).abs().sort(descending=True).values[:2].tolist() == [3, 0]


def test_hash_is_the_same_in_every_process(update):
    assert torch.equal(inverter(64).read(update), inverter(64).read(update))


def test_answers_have_the_shape_of_a_batch(update):
    made = inverter(64)
    assert made(made.read(update)[None]).shape == (1, 2, 1, 4, 4)


def test_value_that_never_varies_is_no_division_by_zero():
    made = inverter(1000)
    made.scale(torch.ones(7, 305))
    assert made(torch.ones(1, 305)).isfinite().all()
