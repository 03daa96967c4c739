"""The closed form for a batch and the identities it stands on, on victims drawn small."""

import math
from dataclasses import replace

import pytest
import torch

from benchmark.contract import Budget, ImageBatch, Knowledge, Observation
from benchmark.federation import fedsgd
from benchmark.toolbox.closedform import Entrance, patches_of_batch
from benchmark.toolbox.closedform.affine import affine_sets
from benchmark.toolbox.closedform.groups import token_groups
from benchmark.toolbox.closedform.projectors import Equations, solutions
from benchmark.toolbox.closedform.solve import leading_rows, row_space
from benchmark.victims import to_patches

START = {"position_std": 1.0, "class_token_std": 1.0}
MEAN, STD = 0.4, 0.25
CPU = torch.device("cpu")


@pytest.fixture
def seen(make_victim):
    """Make a small victim and its update on a batch; return the observation and the patches."""

    def make(
        batch,
        *,
        architecture="april_b",
        size=8,
        patch=4,
        width=128,
        dtype=torch.float32,
        images=None,
        trained=0.0,
        **settings,
    ):
        spec = {"channels": 3, "size": size, "patch": patch, "width": width}
        spec |= {"depth": 2, "initialisation": START} | settings
        if architecture != "april_b":
            spec = {"channels": 3, "size": size, **settings}
        victim = make_victim(architecture, seed=batch, **spec).to(dtype)
        draws = torch.Generator().manual_seed(batch)
        for name, parameter in victim.network.named_parameters():
            if trained and name.endswith(("bias", "norm1.weight")):
                noise = torch.randn(parameter.shape, generator=draws)
                parameter.data += trained * noise.to(dtype)
        if images is None:
            images = torch.rand(batch, 3, size, size, generator=draws)
        update = fedsgd(victim, ImageBatch(images, torch.arange(batch)))
        known, budget = Knowledge(batch_size=batch), Budget(60.0, 2**30)
        truth = to_patches((images.double() - MEAN) / STD, victim.anatomy.patch)
        return Observation(update, victim, known, budget, draws), truth

    return make


def read(given, batch, constants=None):
    entrance = Entrance.of(given)
    pixels = entrance.embedding_gradient.shape[1]
    constants = torch.empty(0, pixels).double() if constants is None else constants
    draws = torch.Generator().manual_seed(0)
    return patches_of_batch(entrance, batch, constants=constants, device=CPU, generator=draws)


def decibels(answer, truth):
    """Return the PSNR of each true image in the answer nearest to it."""
    errors = (answer.patches[:, None] - truth).mul(STD).square().flatten(2).mean(2)
    return -10 * errors.min(0).values.log10()


@pytest.mark.parametrize(("batch", "least"), [(2, 100), (3, 90), (5, 60)])
def test_every_image_of_a_batch_comes_out_of_one_gradient(seen, batch, least):
    given, truth = seen(batch)
    answer = read(given, batch)
    assert answer.told_apart
    assert decibels(answer, truth).min() > least


def test_tokens_may_be_more_than_the_head_size(seen):
    given, truth = seen(9)  # 37 tokens, heads of 32
    assert decibels(read(given, 9), truth).median() > 40


def test_biases_a_norm_with_a_shift_and_two_prefix_tokens_are_no_obstacle(seen):
    small = {"architecture": "timm/deit_tiny_distilled_patch16_224", "size": 32}
    given, truth = seen(3, **small, trained=0.3)
    entrance = Entrance.of(given)
    assert entrance.weight.shape[0] == 193  # a column for the biases
    assert entrance.shift.any()
    assert entrance.prefix.shape[1] == 2
    assert decibels(read(given, 3), truth).min() > 60


def test_black_patches_that_images_share_are_set_aside_and_given_back(seen):
    images = torch.rand(3, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    images[:2, :, :4, :4] = 0  # two images of three, at one position
    images[:, :, 4:8, :4] = 0  # all, at another
    images[2, :, 8:12, :4] = 0  # one alone
    given, truth = seen(3, images=images, size=16, width=256)
    black = torch.full((1, 48), -MEAN / STD).double()
    answer = read(given, 3, constants=black)
    assert answer.told_apart
    assert decibels(answer, truth).min() > 80
    assert decibels(read(given, 3), truth).max() < 40  # not without knowing of black


def test_what_cannot_be_told_apart_is_not_guessed(seen):
    one = torch.rand(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    answer = read(seen(3, images=one.expand(3, -1, -1, -1).clone())[0], 3)
    assert not answer.told_apart
    assert answer.patches.shape == (3, 4, 48)
    assert (answer.patches == answer.sets.offsets).all()


def test_noise_on_the_update_costs_in_proportion(seen):
    given, truth = seen(2)
    scores = []
    for scale in (1e-5, 1e-4):
        noisy = {
            name: part + scale * part.square().mean().sqrt() * torch.randn(part.shape)
            for name, part in given.update.items()
        }
        torch.manual_seed(0)
        noisy = Observation(
            type(given.update)(noisy), given.model, given.knowledge, given.budget, given.generator
        )
        scores.append(decibels(read(noisy, 2), truth).median())
    assert 10 < scores[0] - scores[1] < 30  # 20 dB a decade
    assert scores[1] > 30


def test_whole_levels_make_a_poor_answer_exact(seen):
    draws = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (3, 3, 8, 8), generator=draws) / 255
    given, truth = seen(3, images=images)
    answer = read(given, 3)
    off = answer.equations.mT @ answer.equations  # errors as the solve makes them, 30 dB
    errors = torch.randn(3, 4, 8, generator=draws).double() @ torch.linalg.inv(
        torch.linalg.cholesky(off)
    )
    errors = errors / errors.square().mean().sqrt() @ answer.sets.directions.T
    poor = replace(answer, patches=answer.patches + 0.03 / STD * errors * (48 / 8) ** 0.5)
    assert decibels(poor, truth).max() < 40
    scale, shift = torch.full((48,), 255 * STD).double(), torch.full((48,), 255 * MEAN).double()
    exact = poor.in_levels(scale, shift, draws)
    assert decibels(replace(poor, patches=exact), truth).min() > 120


@pytest.fixture
def inside(seen):
    """The span of a batch of three in float64, its equations, and the tokens in it."""
    given, truth = seen(3, dtype=torch.float64)
    entrance, draws = Entrance.of(given), torch.Generator().manual_seed(0)
    span = leading_rows(entrance.gradient, 13, draws)[0]
    flat = truth.flatten(0, 1)
    tokens = span.T @ entrance.tokens(flat, torch.arange(4).repeat(3))
    return entrance, span, truth, tokens


def test_both_readings_of_theta_agree(inside):
    entrance, span, _, _ = inside
    from_query = torch.linalg.lstsq(entrance.query @ span, entrance.key_gradient @ span).solution
    from_key = torch.linalg.lstsq(entrance.key @ span, entrance.query_gradient @ span).solution
    torch.testing.assert_close(from_query, from_key.mT, rtol=1e-6, atol=1e-9)


def test_the_truth_lies_in_its_affine_sets(inside):
    entrance, span, truth, _ = inside
    rows = row_space(entrance.embedding_gradient, 12, torch.Generator().manual_seed(0))
    sets = affine_sets(span, rows, entrance, 8)
    assert sets.dimension == 8
    assert sets.distances(truth).max() < 1e-6
    assert sets.distances(torch.randn_like(truth)).min() > 0.1


def test_attention_joins_no_two_images(inside):
    entrance, span, _, tokens = inside
    coordinates = torch.cat([span.T @ entrance.prefix, tokens], dim=1)
    inverse = torch.linalg.inv(coordinates)
    theta = torch.linalg.lstsq(entrance.query @ span, entrance.key_gradient @ span).solution
    logits = inverse @ theta @ inverse.T
    image = torch.arange(12) // 4
    across = logits[:, 1:, 1:][:, image[:, None] != image]
    within = logits[:, 1:, 1:][:, image[:, None] == image]
    assert across.abs().max() < 1e-6 * within.abs().max()


def test_the_images_projectors_solve_the_equations_and_nothing_else_does(inside):
    entrance, span, _, tokens = inside
    common = torch.linalg.qr(span.T @ entrance.prefix)[0]
    equations = observed(entrance, span, common)
    rest = torch.linalg.qr(common, mode="complete")[0][:, 1:]
    coordinates = rest.T @ tokens
    projectors = [
        coordinates[:, own] @ torch.linalg.inv(coordinates)[own]
        for own in (slice(0, 4), slice(4, 8), slice(8, 12))
    ]
    scale = equations.residual(torch.randn(1, 12, 12).double()).norm()
    assert equations.residual(torch.stack(projectors)).norm() < 1e-7 * scale
    found = solutions(equations, 3)
    flat = torch.stack(projectors).flatten(1)
    inside_found = flat @ found.flatten(1).T @ found.flatten(1)
    assert (flat - inside_found).norm() < 1e-6 * flat.norm()
    left = equations.residual(solutions(equations, 4)).flatten(2).norm(dim=(0, 2))
    assert left.max() > 1e-4 * scale  # a fourth is none


def test_the_adjoint_is_the_transpose(inside):
    entrance, span, _, _ = inside
    equations = observed(entrance, span, torch.linalg.qr(span.T @ entrance.prefix)[0])
    x = torch.randn(1, 12, 12).double()
    y = torch.randn_like(equations.residual(x))
    one, other = (equations.residual(x) * y).sum(), (x * equations.adjoint(y)).sum()
    assert math.isclose(one, other, rel_tol=1e-9)


def test_groups_of_known_projectors_are_found():
    basis = torch.randn(9, 9, generator=torch.Generator().manual_seed(0)).double()
    inverse = torch.linalg.inv(basis)
    projectors = [basis[:, i : i + 3] @ inverse[i : i + 3] for i in (0, 3, 6)]
    mixed = torch.tensordot(torch.randn(3, 3).double(), torch.stack(projectors), 1)
    groups = token_groups(mixed, 3, 3)
    assert groups is not None
    for projector in projectors:
        assert min((projector @ group - group).norm() for group in groups) < 1e-8
    assert token_groups(mixed, 2, 2) is None


def observed(entrance, span, common):
    return Equations.observed(
        entrance.query,
        entrance.key,
        entrance.query_gradient,
        entrance.key_gradient,
        span=span,
        common=common,
    )
