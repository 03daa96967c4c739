import copy

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from benchmark.api import Bottleneck, ImageBatch
from benchmark.victims.bottleneck import VariationalBottleneck

ARCHITECTURES = ["april_a", "april_b", "timm/deit_tiny_patch16_224"]


def test_divergence_is_that_of_torch():
    bottleneck, read = VariationalBottleneck(5, 3), torch.randn(4, 5)
    mean, log_variance = bottleneck.encoder(read).chunk(2, dim=1)
    wanted = kl_divergence(Normal(mean, (0.5 * log_variance).exp()), Normal(0.0, 1.0))
    torch.testing.assert_close(bottleneck.divergence(read), wanted.sum(1).mean())


def test_what_is_drawn_is_scaled_by_the_deviation_and_added_to_the_mean():
    bottleneck, read = VariationalBottleneck(5, 3), torch.randn(4, 5)
    mean, log_variance = bottleneck.encoder(read).chunk(2, dim=1)
    bottleneck.draw = torch.ones
    wanted = bottleneck.decoder(mean + (0.5 * log_variance).exp())
    torch.testing.assert_close(bottleneck(read), wanted)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_copy_reads_its_own_bottleneck(make_victim, draw, architecture):
    victim = make_victim(architecture, patch=7).with_bottleneck(Bottleneck(width=8), draw)
    images = torch.rand(2, 1, 28, 28, generator=draw)
    before = victim(images)
    twin = copy.deepcopy(victim)
    twin.network.bottleneck.decoder.weight.data.zero_()
    assert torch.equal(victim(images), before)
    found = twin(images)
    assert torch.allclose(found[0], found[1])  # no image passes
    assert not torch.allclose(before[0], before[1])


def test_drawing_ends_with_its_block(make_victim, draw):
    victim = make_victim(patch=7).with_bottleneck(Bottleneck(width=8), draw)
    batch = ImageBatch(torch.rand(2, 1, 28, 28, generator=draw), torch.tensor([1, 2]))
    mean = victim.loss(batch)
    with victim.drawing(torch.ones):
        assert victim.loss(batch) != mean
    assert victim.loss(batch) == mean
