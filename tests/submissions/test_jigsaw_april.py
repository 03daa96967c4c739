from dataclasses import replace

import pytest
import torch

from benchmark.api import ImageBatch, NotApplicable, Observation, Stack, Update, to_patches
from benchmark.contract import Budget, Knowledge
from benchmark.federation import fedsgd
from submissions.attacks.jigsaw_april.attack import JigsawApril, jigsaw_posterior, masked_patches
from submissions.attacks.jigsaw_april.order import arrange
from submissions.defenses.mjp.defense import MJP


@pytest.fixture
def jigsaw(make_victim, secret):
    """Return a smooth image, the batch the client computes on, and what the server sees."""

    def make(gamma=0.3, gradients=0, **arguments):
        defense = MJP(gamma=gamma, **arguments)
        start = {"layers": "torch", "position_std": 1.0}
        victim = make_victim(size=16, patch=4, width=64, depth=1, initialisation=start)
        model = defense.harden(victim, torch.Generator().manual_seed(1))
        rows, columns = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
        image = 0.5 + 0.3 * torch.sin(rows / 5) * torch.cos(columns / 3) + 0.01 * rows.sin()
        truth = ImageBatch(image[None, None], torch.tensor([3]))
        sent = defense.protect_batch(truth, model, secret)
        seen = Observation(
            update=fedsgd(model, sent),
            model=model,
            knowledge=Knowledge(batch_size=1),
            budget=Budget(60, 2**30, gradients),
            generator=torch.Generator().manual_seed(0),
        )
        return truth, sent, seen

    return make


def normalised(images, seen):
    return to_patches((images - seen.model.mean) / seen.model.std, 4)[0].double()


@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9])
def test_mask_is_read_off_the_positions(jigsaw, gamma):
    _, sent, seen = jigsaw(gamma)
    assert torch.equal(masked_patches(seen), sent.masked[0])


@pytest.mark.parametrize("kind", ["none", "pca", "linear", "mlp"])
def test_every_patch_lies_in_its_set_whatever_localises(jigsaw, kind):
    truth, sent, seen = jigsaw(localisation=kind)
    posterior = jigsaw_posterior(seen, sent.masked[0])
    basis = posterior.within.directions
    assert basis.shape[1] == sent.masked.sum() - 1
    for images in (truth.images, sent.images):  # masked places: the original and the shuffled
        off = normalised(images, seen) - posterior.mean
        off = off - (off @ basis) @ basis.T
        assert off.abs().max() < 1e-2


def test_set_is_no_larger_than_the_masked_patches_make_it(jigsaw):
    _, sent, seen = jigsaw()
    patches, mask = normalised(sent.images, seen), sent.masked[0]
    differences = patches[mask] - patches[mask].mean(0)
    basis = jigsaw_posterior(seen, mask).within.directions
    inside = torch.linalg.qr(differences.T)[0][:, : mask.sum() - 1]
    leading = torch.linalg.svdvals(inside.T @ basis)[0]
    assert leading.item() == pytest.approx(1, abs=1e-3)


def test_one_masked_patch_hides_nothing(jigsaw):
    truth, sent, seen = jigsaw(1 / 16)
    assert sent.masked.sum() == 1
    (answer,) = JigsawApril().reconstruct_stack(Stack([seen]))
    assert (answer.images - truth.images).abs().max() < 1e-2


def test_matching_brings_the_answer_nearer_and_counts_its_gradients(jigsaw):
    truth, _, seen = jigsaw(gradients=60)
    closed = JigsawApril(steps=0).reconstruct(seen)
    matched = JigsawApril(steps=60).reconstruct(seen)
    assert closed.gradient_evaluations == 0
    assert 0 < matched.gradient_evaluations <= 60
    errors = [(one.images - truth.images).square().mean() for one in (closed, matched)]
    assert errors[1] < errors[0]


def test_update_without_positions_or_a_shared_one_is_not_read(jigsaw):
    _, _, seen = jigsaw()
    for name in ("pos_embed", "unknown_position", "patch_embed.weight"):
        with pytest.raises(NotApplicable, match=name):
            JigsawApril().applies(replace(seen, update=Update(seen.update).without(name)))
    with pytest.raises(NotApplicable, match="share a position"):
        JigsawApril().applies(jigsaw(positions="kept", localisation="none")[2])


def test_patches_out_of_place_go_back_where_their_edges_fit():
    ramp = (torch.arange(16.0)[:, None] * 16 + torch.arange(16.0)) / 256
    patches = to_patches(ramp[None, None], 4)[0].view(16, 1, 4, 4)
    order = torch.arange(16)
    order[[5, 10, 6]] = order[[10, 6, 5]]
    movable = torch.zeros(16, dtype=torch.bool)
    movable[[5, 6, 9, 10]] = True
    assert torch.equal(order[arrange(patches[order], movable)], torch.arange(16))
    fixed = torch.zeros(16, dtype=torch.bool)
    assert torch.equal(arrange(patches[order], fixed), torch.arange(16))
