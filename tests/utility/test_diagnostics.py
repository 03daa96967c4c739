import numpy as np
import pytest
import torch

from benchmark.contract import ImageBatch
from benchmark.registry import Registry
from benchmark.utility.diagnostics import (
    accumulated_eigenvalues,
    compare_shuffled,
    diagnose,
    explained_variance,
    position_error,
)

SMALL = {"size": 16, "patch": 4, "width": 32, "depth": 1}


@pytest.fixture
def victim(make_victim):
    return make_victim(**SMALL, initialisation={"layers": "torch", "position_std": 1.0})


@pytest.fixture
def batch(draw):
    return ImageBatch(torch.rand(6, 1, 16, 16, generator=draw), torch.arange(6))


def flipped(batch):
    return ImageBatch(batch.images.flip(2), batch.labels)


def test_same_images_differ_in_nothing(victim, batch):
    same = compare_shuffled(victim, batch, batch)
    assert (same.difference, same.consistency) == (0, 1)


def test_difference_is_the_squared_norm_of_what_the_head_reads(victim, batch):
    victim.network.head.weight.data.copy_(torch.eye(32)[:10])
    victim.network.head.bias.data.zero_()
    logits = [victim(each.images) for each in (batch, flipped(batch))]
    found = compare_shuffled(victim, batch, flipped(batch))
    seen = (logits[0] - logits[1]).square().sum(1).mean().item()  # ten of the 32 features
    assert found.difference > seen > 0
    stays = (logits[0].argmax(1) == logits[1].argmax(1)).double().mean().item()
    assert found.consistency == pytest.approx(stays)


def test_victim_without_positions_is_wholly_consistent_under_a_shuffle_of_patches(victim, batch):
    blind = victim.with_fixed_positions("zeros")
    rows = batch.images.view(6, 1, 4, 4, 16).flip(2).reshape(6, 1, 16, 16)  # patches, not pixels
    found = compare_shuffled(blind, batch, ImageBatch(rows, batch.labels))
    assert found.consistency == 1
    assert found.difference < 1e-9
    assert compare_shuffled(victim, batch, ImageBatch(rows, batch.labels)).difference > 1e-6


def test_positions_in_a_plane_are_explained_by_two_directions_and_found_exactly(victim, draw):
    rows, columns = torch.arange(16.0) // 4, torch.arange(16.0) % 4
    turned = torch.linalg.qr(torch.randn(32, 2, generator=draw))[0].T
    places = torch.stack([rows, columns], dim=1) + 5
    victim.network.pos_embed.data[0, 1:] = places @ turned
    assert explained_variance(victim)[:2].tolist() == pytest.approx([0.5, 1], abs=1e-5)
    assert accumulated_eigenvalues(victim)[1].item() == pytest.approx(1, abs=1e-5)
    assert position_error(victim, 1) < 1e-4
    assert position_error(victim, 2) < 1e-4


def test_random_positions_tell_no_place(victim):
    assert position_error(victim, 1) > 2  # of 16 places; the mean place errs by 4
    assert position_error(victim, 2) > 0.5
    assert explained_variance(victim)[2] < 0.6
    assert accumulated_eigenvalues(victim)[-1].item() == pytest.approx(1)


def test_nothing_is_told_of_a_victim_that_diverged(victim, batch, draw):
    shuffler = Registry().select("defense", ("mjp,gamma=0.5",))[0].build()
    told = diagnose(victim, batch, shuffler, np.random.default_rng(0))
    assert set(told) >= {"consistency", "difference", "position_error_2d"}
    victim.network.head.bias.data.fill_(torch.nan)
    victim.network.pos_embed.data.fill_(torch.nan)
    assert diagnose(victim, batch, shuffler, np.random.default_rng(0)) == {}
