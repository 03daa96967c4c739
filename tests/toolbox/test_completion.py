"""Closed forms beyond their conditions, against the truth, on victims drawn small."""

import pytest
import torch

from benchmark.contract import ImageBatch, Update
from benchmark.federation import fedsgd
from benchmark.toolbox.closedform import patches_from_positions, patches_from_span
from benchmark.toolbox.closedform.completion import Frame, complete
from benchmark.toolbox.closedform.levels import nearest_plane, snap
from benchmark.toolbox.closedform.posterior import Spread, position_posterior, span_posterior
from benchmark.victims import to_patches, weights

SIZE, PATCH = 32, 4  # 64 patches of 16 pixels
START = {"position_std": 1.0, "class_token_std": 1.0}


@pytest.fixture
def image():
    """A disc before a slope, in 8-bit levels, (1, 1, 32, 32)."""
    row, column = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    disc = (row - 13) ** 2 + (column - 18) ** 2 < 80
    return torch.where(disc, 200, 40 + 2 * row + column)[None, None] / 255


@pytest.fixture
def leak(make_victim, image):
    """Make a victim of some width, its update under noise, and the true patches."""

    def make(width, noise=0.0, **settings):
        sizes = {"size": SIZE, "patch": PATCH, "depth": 2, "initialisation": START}
        victim = make_victim(width=width, **sizes, **settings)
        update = fedsgd(victim, ImageBatch(image, torch.tensor([3])))
        std = noise * update.norm() / sum(each.numel() for each in update.values()) ** 0.5
        draws = torch.Generator().manual_seed(0)
        noised = {n: t + std * torch.randn(t.shape, generator=draws) for n, t in update.items()}
        return victim, Update(noised), to_patches((image - 0.4) / 0.25, PATCH)[0].double()

    return make


def by_positions(update):
    return update["pos_embed"][0, 1:], update["patch_embed.weight"]


def span_parts(victim, update):
    parts, known = victim.anatomy, weights(victim)
    block = parts.blocks[0]
    norm = block.attention_norm
    attention = torch.cat([part.of(update) for part in (block.query, block.key, block.value)])
    return (attention, update["patch_embed.weight"]), {
        "tokens": parts.tokens,
        "weight": known["patch_embed.weight"],
        "offsets": known["patch_embed.bias"] + known["pos_embed"][0, 1:],
        "norm": (known[f"{norm}.weight"], known[f"{norm}.bias"]),
        "generator": torch.Generator().manual_seed(0),
    }


def rms(found, truth):
    """Return the error in levels."""
    return float((found - truth).square().mean().sqrt()) * 255 * 0.25


def test_position_gradient_has_the_structural_rank_and_no_more(leak):
    _, update, truth = leak(48)
    posterior = position_posterior(*by_positions(update), centred=True)
    unknown = posterior.among.directions[:, posterior.among.gains > 0.5]
    assert unknown.shape == (64, 64 - 47)
    left = truth - posterior.mean
    assert rms(unknown @ (unknown.T @ left), left) < 1.0


def test_an_error_is_as_large_as_the_update_says(leak):
    for noise in (0.0003, 0.003):
        _, update, truth = leak(128, noise)
        posterior = position_posterior(*by_positions(update), centred=True)
        said = float(posterior.std().square().mean().sqrt()) * 255 * 0.25
        assert 0.4 < rms(posterior.mean, truth) / said < 2.5


def test_total_variation_fills_what_positions_leave_open(leak):
    victim, update, truth = leak(48)
    posterior = position_posterior(*by_positions(update), centred=True)
    found = complete(posterior, Frame.of(victim))
    assert rms(found, truth) < 0.2 * rms(patches_from_positions(*by_positions(update)), truth)


def test_total_variation_fills_what_the_span_leaves_open(leak):
    victim, update, truth = leak(76)  # 65 tokens leave 10 equations for 16 pixels
    tensors, asked = span_parts(victim, update)
    plain = patches_from_span(*tensors, **asked)
    found = complete(span_posterior(*tensors, **asked), Frame.of(victim))
    assert rms(found, truth) < 0.7 * rms(plain, truth)


@pytest.mark.parametrize("width", [56, 60])
def test_levels_make_a_completed_image_exact(leak, width):
    victim, update, truth = leak(width)
    posterior, frame = position_posterior(*by_positions(update), centred=True), Frame.of(victim)
    completed = complete(posterior, frame)
    assert rms(completed, truth) > 0.01
    assert rms(snap(posterior, frame, 256, completed), truth) < 1e-4


def test_levels_are_left_alone_under_noise_that_hides_them(leak):
    victim, update, _ = leak(128, 0.01)
    posterior = position_posterior(*by_positions(update), centred=True)
    patches = posterior.mean.clone()
    assert torch.equal(snap(posterior, Frame.of(victim), 256, patches), patches)


@pytest.mark.parametrize("noise", [0.001, 0.01])
def test_the_likeliest_image_is_nearer_than_the_plain_answer_under_noise(leak, noise):
    victim, update, truth = leak(128, noise)
    frame = Frame.of(victim)
    tensors, asked = span_parts(victim, update)
    for plain, posterior in (
        (
            patches_from_positions(*by_positions(update)),
            position_posterior(*by_positions(update), centred=True),
        ),
        (patches_from_span(*tensors, **asked), span_posterior(*tensors, **asked)),
    ):
        assert rms(complete(posterior, frame), truth) < rms(plain, truth)


def test_nearest_plane_finds_what_rounding_does_not(draw):
    truth = torch.randint(0, 256, (12, 40), generator=draw).double()
    direction = torch.nn.functional.normalize(torch.rand(12, 1, generator=draw).double(), dim=0)
    off = truth + direction * 3 * torch.randn(1, 40, generator=draw)
    covariance = 9 * direction @ direction.T + 1e-6 * torch.eye(12)
    assert not torch.equal(off.round(), truth)
    assert (nearest_plane(off, covariance) == truth).double().mean() > 0.9


def test_frames_join_patches_as_they_were_cut(image):
    frame = Frame(SIZE // PATCH, PATCH, torch.tensor([0.25]), torch.tensor([0.4]))
    patches = to_patches(image, PATCH)[0].double()
    torch.testing.assert_close(frame.image(patches), 0.25 * image[0].double())
    other = torch.rand(1, SIZE, SIZE, dtype=torch.float64)
    inner = (frame.image(patches) * other).sum(), (patches * frame.patches(other)).sum()
    torch.testing.assert_close(*inner)


def test_spread_is_the_matrix_it_says(draw):
    directions = torch.linalg.qr(torch.randn(5, 2, generator=draw).double())[0]
    spread = Spread(directions, torch.tensor([2.0, 3.0]).double(), 1.0)
    matrix = spread(torch.eye(5).double())
    torch.testing.assert_close(matrix @ directions, directions * torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(spread.variance(), (matrix @ matrix).diagonal())
