"""Affine sets of a batch's patches against the truth, on tokens made here."""

import pytest
import torch
from torch.nn import functional

from benchmark.toolbox.closedform.affine import affine_sets
from benchmark.toolbox.closedform.entrance import Entrance

UNUSED = ("query", "key", "query_gradient", "key_gradient", "gradient", "embedding_gradient")
BATCH, POSITIONS, PIXELS, WIDTH = 3, 4, 20, 40


def normal(*shape, seed):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draws, dtype=torch.float64)


def basis(rows):
    return torch.linalg.svd(rows, full_matrices=False)[2].T


@pytest.fixture(params=["no norm", "norm", "shifted norm"])
def case(request):
    """Sets and the true patches (batch, positions, pixels) they were made of."""
    truth, weight = normal(BATCH, POSITIONS, PIXELS, seed=0), normal(WIDTH, PIXELS, seed=1)
    offsets, prefix = normal(POSITIONS, WIDTH, seed=2), normal(1, WIDTH, seed=3)
    scale, shift = normal(WIDTH, seed=4).abs(), torch.zeros(WIDTH).double()
    if request.param == "shifted norm":
        shift = normal(WIDTH, seed=5)
    norm = None if request.param == "no norm" else (scale, shift)
    tokens = (truth @ weight.T + offsets).flatten(0, 1)
    if norm:
        tokens = functional.layer_norm(tokens, (WIDTH,), scale, shift)
    centred = (part - part.mean(0) for part in (weight, offsets.T))
    of_weight, of_offsets = (
        (scale[:, None] * part for part in centred) if norm else (weight, offsets.T)
    )
    nothing = torch.empty(0).double()
    entrance = Entrance(
        weight=of_weight,
        offsets=of_offsets,
        shift=shift,
        norm=norm and (scale, 1e-5),
        prefix=prefix.T,
        **dict.fromkeys(UNUSED, nothing),
    )
    span, rows = basis(torch.cat([tokens, prefix])), basis(truth.flatten(0, 1))
    return (
        affine_sets(span, rows, entrance, POSITIONS * (BATCH - 1)),
        truth,
        weight @ truth[..., None] + offsets[..., None],
    )


def test_every_true_patch_lies_in_its_set_and_no_other_does(case):
    sets, truth, _ = case
    assert sets.dimension == POSITIONS * (BATCH - 1)
    assert sets.distances(truth).max() < 1e-9
    assert sets.distances(truth + 0.1 * normal(*truth.shape, seed=9)).min() > 0.01


def test_directions_are_orthonormal_and_orthogonal_to_the_offsets(case):
    sets, _, _ = case
    torch.testing.assert_close(
        sets.directions.T @ sets.directions, torch.eye(sets.dimension).double()
    )
    assert (sets.offsets @ sets.directions).abs().max() < 1e-9


def test_sets_in_levels_hold_the_patches_in_levels(case):
    sets, truth, _ = case
    scale, shift = normal(PIXELS, seed=6).abs() + 10, normal(PIXELS, seed=7)
    levels = sets.rescale(scale, shift)
    assert levels.distances(scale * truth + shift).max() < 1e-8
    torch.testing.assert_close(
        levels.directions.T @ levels.directions, torch.eye(sets.dimension).double()
    )


def test_the_shift_comes_with_the_factor_of_the_norm(case):
    sets, truth, embeddings = case
    if not sets.direction_shifts.any():
        assert not sets.offset_shifts.any()
        return
    for each in (sets, sets.rescale(torch.full((PIXELS,), 2.0).double(), torch.ones(PIXELS))):
        patches = truth if each is sets else 2 * truth + 1
        found = (patches - each.offsets) @ each.directions @ each.direction_shifts
        spread = embeddings[..., 0].var(-1, correction=0) + 1e-5
        torch.testing.assert_close(found + each.offset_shifts, spread.sqrt())
