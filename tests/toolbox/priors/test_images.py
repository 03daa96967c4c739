import pytest
import torch

from benchmark.toolbox.priors import EuclideanNorm, PatchBoundary, TotalVariation

KINDS = ["anisotropic", "isotropic", "euclidean"]
PRIORS = [*map(TotalVariation, KINDS), EuclideanNorm(), PatchBoundary(2)]
SQUARE = torch.tensor([[0.0, 3.0], [4.0, 4.0]]).view(1, 1, 1, 2, 2)


def drawn(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(
    ("kind", "by_hand"),
    [
        ("anisotropic", (3 + 0) / 2 + (4 + 1) / 2),
        ("isotropic", (5 + 1 + 0 + 0) / 4),  # (3, 4), then (., 1), (0, .), (., .)
        ("euclidean", 3 + 17**0.5 + 4 + 1),  # dx, dy, falling, rising
    ],
)
def test_total_variation_of_four_pixels_is_the_one_by_hand(kind, by_hand):
    assert TotalVariation(kind)(SQUARE).tolist() == pytest.approx([by_hand])


def test_mean_variations_ignore_repeating_the_batch_and_the_euclidean_grows_by_its_root():
    one, two = SQUARE, SQUARE.repeat(1, 2, 1, 1, 1)
    for kind, growth in zip(KINDS, (1, 1, 2**0.5), strict=True):
        prior = TotalVariation(kind)
        assert prior(two).item() == pytest.approx(growth * prior(one).item())


def test_norms_are_per_image_and_averaged_over_the_batch():
    images = torch.stack([torch.full((2, 3, 3), 1.0), torch.full((2, 3, 3), 2.0)])[None]
    assert EuclideanNorm()(images).item() == pytest.approx((18**0.5 + 72**0.5) / 2)


@pytest.mark.parametrize("vertical", [False, True])
@pytest.mark.parametrize(("step", "wanted"), [(4, 2 * (3 * 8) ** 0.5), (3, 0), (5, 0)])
def test_a_step_counts_at_a_border_of_patches_and_nowhere_else(step, wanted, vertical):
    images = torch.ones(1, 1, 3, 8, 8)
    images[..., step:] += 2
    images = images.mT if vertical else images
    assert PatchBoundary(4)(images).item() == pytest.approx(wanted)


def test_patch_boundary_agrees_with_equation_8_read_literally_on_wide_images():
    images, patch = drawn(3, 2, 3, 8, 12), 4
    for trial, penalty in zip(images, PatchBoundary(patch)(images), strict=True):
        x = trial.permute(0, 2, 3, 1)  # batch, row, column, channel, as printed
        total = torch.zeros((), dtype=x.dtype)
        for k in range(1, 8 // patch):
            total += (x[:, patch * k, :, :] - x[:, patch * k - 1, :, :]).flatten().norm()
        for k in range(1, 12 // patch):
            total += (x[:, :, patch * k, :] - x[:, :, patch * k - 1, :]).flatten().norm()
        assert penalty.item() == pytest.approx(total.item())


def test_one_patch_has_no_borders():
    assert PatchBoundary(8)(drawn(2, 1, 3, 8, 8)).tolist() == [0, 0]


def test_patches_that_do_not_tile_the_image_are_refused():
    with pytest.raises(ValueError, match="3 px patches must tile images of 8 x 6 px"):
        PatchBoundary(3)(drawn(1, 1, 1, 8, 6))
    with pytest.raises(ValueError, match="patch is 0"):
        PatchBoundary(0)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_trials_are_independent_and_gradients_are_right(prior):
    images = drawn(3, 2, 2, 4, 6).requires_grad_()
    together = prior(images)
    alone = torch.cat([prior(image[None]) for image in images])
    torch.testing.assert_close(together, alone)
    (gradient,) = torch.autograd.grad(together[1], images, retain_graph=True)
    assert gradient[1].any()
    assert not gradient[[0, 2]].any()
    assert torch.autograd.gradcheck(prior, images)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_a_black_image_costs_nothing_and_has_a_finite_gradient(prior):
    images = torch.zeros(2, 1, 3, 8, 8, requires_grad=True)
    penalty = prior(images)
    assert penalty.tolist() == [0, 0]
    (gradient,) = torch.autograd.grad(penalty.sum(), images)
    assert not gradient.any()
