import numpy as np
import pytest
import torch

from benchmark.api import ImageBatch, NotApplicable, PluginError, to_patches
from benchmark.federation import DefendedRound
from benchmark.registry import Registry
from submissions.defenses.mjp.defense import MJP, draw_mask

REGISTRY = Registry()
ABLATIONS = {
    "B": "gamma=0.0,positions=none,localisation=none",
    "C": "gamma=1.0,positions=kept,pixels=true,localisation=none",
    "D": "gamma=0.0,positions=kept",
    "E": "positions=kept,localisation=none",
    "F": "positions=indexed,localisation=none",
    "G": "localisation=none",
    "H": "localisation=pca",
    "I": "localisation=linear",
    "J": "",
}


def built(arguments):
    label = f"mjp,{arguments}" if arguments else "mjp,defaults"
    return REGISTRY.find("defense", label)[0].build()


@pytest.fixture
def victim(make_victim):
    start = {"layers": "torch", "position_std": 1.0}
    return make_victim(size=16, patch=4, width=32, depth=1, initialisation=start)


@pytest.fixture
def batch(draw):
    return ImageBatch(torch.rand(3, 1, 16, 16, generator=draw), torch.tensor([1, 2, 3]))


@pytest.mark.parametrize("side", [2, 4, 7, 14])
@pytest.mark.parametrize("gamma", [0, 0.1, 0.3, 0.5, 0.9, 1])
def test_mask_covers_its_share_exactly(secret, side, gamma):
    mask = draw_mask(side, gamma, secret)
    assert mask.sum() == round(gamma * side**2)


def test_mask_is_made_of_blocks(secret):
    """Neighbours are masked together far more often than patches drawn one by one are."""
    share = []
    for _ in range(50):
        grid = draw_mask(14, 0.3, secret).view(14, 14).float()
        share.append((grid[1:] * grid[:-1]).sum() / grid[1:].sum())
    assert np.mean(share) > 0.7  # 0.3 where they are independent


def test_masked_patches_trade_places_and_the_others_stay(victim, batch, secret):
    made = MJP(gamma=0.5)
    sent = made.protect_batch(batch, made.harden(victim, torch.Generator()), secret)
    assert torch.equal(sent.labels, batch.labels)
    assert not torch.equal(sent.masked[0], sent.masked[1])  # a mask an image
    before, after = to_patches(batch.images, 4), to_patches(sent.images, 4)
    for one, other, mask in zip(before, after, sent.masked, strict=True):
        assert torch.equal(one[~mask], other[~mask])
        assert not torch.equal(one[mask], other[mask])
        found = torch.cdist(one[mask], other[mask]) == 0
        assert (found.sum(0) == 1).all()
        assert (found.sum(1) == 1).all()


def test_pixels_are_shuffled_alike_in_every_masked_patch(victim, batch, secret):
    made = MJP(gamma=1.0, positions="kept", pixels=True, localisation="none")
    sent = made.protect_batch(batch, made.harden(victim, torch.Generator()), secret)
    before, after = to_patches(batch.images, 4)[0], to_patches(sent.images, 4)[0]
    order = torch.cdist(before.sort(1).values, after.sort(1).values).argmin(1)
    moved = after[order]  # the same patches, each with its pixels in the one other order
    columns = torch.cdist(before.T, moved.T).argmin(1)
    assert torch.equal(moved[:, columns], before)
    assert not torch.equal(columns, torch.arange(16))


@pytest.mark.parametrize("name", ABLATIONS)
def test_ablations_of_table_2_send_what_they_add(quick, name):
    made = built(ABLATIONS[name])
    round_ = DefendedRound(quick("quick_digits_search").round, made, f"mjp,{name}")
    sent = set(round_.update(0)) - set(round_.plain.update(0))
    trained = {each.partition(".")[0] for each in sent}
    unknown = {"unknown_position"} if name in "GHIJ" else set()
    index = {"index_embed"} if name == "F" else set()
    localiser = {"localiser"} if name in "DIJ" else set()
    assert trained == unknown | index | localiser
    assert ("pos_embed" in round_.update(0)) == (name != "B")
    assert round_.server_model.spec == round_.model.spec


def test_without_masks_or_additions_it_shares_the_undefended_update(quick):
    idle = MJP(gamma=0.0, positions="kept", localisation="none")
    round_ = DefendedRound(quick("quick_digits_search").round, idle, "idle")
    assert round_.update(0) is round_.plain.update(0)


def test_gradient_does_not_tell_in_which_order_masked_patches_stand(victim, batch, secret):
    """The shuffle hides nothing of itself: the network reads masked patches as a set."""
    made = MJP(gamma=0.5)
    model = made.harden(victim, torch.Generator().manual_seed(0))
    sent = made.protect_batch(batch, model, secret)
    unshuffled = ImageBatch(batch.images, batch.labels, sent.masked)
    pair = [
        torch.autograd.grad(model.loss(b), list(model.weights().values()))
        for b in (sent, unshuffled)
    ]
    for one, other in zip(*pair, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("gamma", [-0.1, 1.1])
def test_share_out_of_its_range_is_refused_by_name(gamma):
    with pytest.raises(PluginError, match=f"defense mjp,gamma={gamma}: gamma={gamma} should"):
        built(f"gamma={gamma}")


def test_localising_positions_that_there_are_none_of_is_refused_in_a_line():
    with pytest.raises(PluginError, match="without positions there are none to localise"):
        built("positions=none")


def test_victim_without_patches_is_not_defended(make_victim):
    with pytest.raises(NotApplicable):
        MJP().harden(make_victim("cifar/resnet20", channels=3, size=32), torch.Generator())
