import pytest
import torch
from torch import nn

from benchmark.victims import layer_inputs


@pytest.fixture
def network(draw):
    return nn.Sequential(nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 4), nn.Linear(4, 1))


def test_inputs_come_in_the_order_of_calls(network):
    x = torch.ones(5, 2)
    with layer_inputs(network[3], network[0], network[2]) as read:
        answer = network(x)
    assert read[0] is x
    assert [each.shape for each in read] == [(5, 2), (5, 3), (5, 4)]
    assert torch.equal(network[3](read[2]), answer)


def test_a_pass_that_stops_computes_nothing_behind_the_last_layer(network):
    with layer_inputs(network[0], network[2], stop=True) as read, layer_inputs(network[3]) as later:
        network(torch.ones(5, 2))
    assert [each.shape for each in read] == [(5, 2), (5, 3)]
    assert not later


@pytest.mark.parametrize("stop", [False, True])
def test_hooks_are_gone_after_a_pass_that_fails(network, stop):
    with pytest.raises(RuntimeError), layer_inputs(network[2], network[0], stop=stop) as read:
        network(torch.ones(5, 7))
    network(torch.ones(5, 2))
    assert [each.shape for each in read] == [(5, 7)]
