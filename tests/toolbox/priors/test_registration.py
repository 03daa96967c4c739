import numpy as np
import pytest
import torch
from skimage import data
from skimage.transform import resize, rotate

from benchmark.toolbox.priors import register

SIDE, MARGIN = 64, 8
PHOTO = torch.from_numpy(resize(data.astronaut() / 255, (80, 80), anti_aliasing=True))
PHOTO = ((PHOTO.permute(2, 0, 1) - 0.45) / 0.25).float()
INSIDE = (..., slice(MARGIN, -MARGIN), slice(MARGIN, -MARGIN))


def view(down, right, photo=PHOTO):
    """Return the photograph through a window; moving the window moves the picture back."""
    top, left = MARGIN + down, MARGIN + right
    return photo[:, top : top + SIDE, left : left + SIDE]


def error(image, truth=None):
    truth = view(0, 0) if truth is None else truth
    return (image - truth)[INSIDE].square().mean().item()


def test_restarts_at_known_shifts_come_back_to_the_place_most_of_them_share():
    images = torch.stack([view(0, 0), view(0, 0), view(0, 0), view(4, -3), view(-2, 5)])
    assert error(images.mean(0)) > 0.01
    assert error(register(images)) < 1e-10


def test_restarts_that_all_differ_come_to_one_place():
    images = torch.stack([view(*shift) for shift in ((0, 0), (1, 2), (-2, 1), (2, -1), (-1, -2))])
    consensus = register(images)
    assert min(error(consensus, image) for image in images) < 1e-10


def test_a_shift_is_found_under_noise():
    images = torch.stack([view(0, 0), view(0, 0), view(0, 0), view(3, -4)])
    noise = 0.3 * torch.randn(images.shape, generator=torch.Generator().manual_seed(0))
    assert error(register(images + noise)) < 1.2 * 0.3**2 / 4
    assert error((images + noise).mean(0)) > 1.5 * 0.3**2 / 4


@pytest.mark.parametrize(("align", "allowed"), [("shift", 1e-8), ("flow", 0.5)])
def test_a_far_shift_is_undone_first_and_what_moves_in_repeats_the_edge(align, allowed):
    image = torch.full((1, SIDE, SIDE), 5.0)
    image[:, 24:36, 20:34] += PHOTO[:1, 30:42, 30:44]
    far = image.roll((16, -12), dims=(1, 2))  # the frame is plain, so nothing wraps round
    images = torch.stack([image, image, image, far])
    plain, consensus = images.mean(0), register(images, align)
    assert (consensus - image).norm() ** 2 < allowed * (plain - image).norm() ** 2


def test_flow_brings_together_what_is_turned_and_a_shift_cannot():
    turned = [
        torch.from_numpy(rotate(PHOTO.permute(1, 2, 0).numpy(), angle, order=1, mode="edge"))
        for angle in (0, 3, -3, 5, -5)
    ]
    images = torch.stack([view(0, 0, photo.permute(2, 0, 1)) for photo in turned]).float()
    assert error(register(images, "flow")) < 0.6 * error(register(images, "shift"))


@pytest.mark.parametrize("align", ["shift", "flow"])
def test_equal_restarts_come_back_as_they_are(align):
    for image in (view(0, 0), torch.full((1, 8, 8), 0.5)):
        consensus = register(image.expand(3, -1, -1, -1), align)
        torch.testing.assert_close(consensus, image, rtol=0, atol=1e-6)


def test_consensus_is_a_target_without_gradient_of_the_images_type():
    images = torch.stack([view(0, 0), view(1, 0)]).double().requires_grad_()
    consensus = register(images)
    assert consensus.dtype == torch.float64
    assert consensus.shape == images.shape[1:]
    assert not consensus.requires_grad


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_restart_is_named(bad):
    images = torch.stack([view(0, 0)] * 3)
    images[1, 0, 0, 0] = bad
    with pytest.raises(ValueError, match=r"restarts \[1\] are not finite"):
        register(images)
