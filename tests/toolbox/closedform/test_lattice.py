"""Whole pixels on affine sets, on integer patches drawn here."""

import sys

import pytest
import torch

from benchmark.errors import BenchmarkError
from benchmark.toolbox.closedform.affine import AffineSets
from benchmark.toolbox.closedform.lattice import reduce_pixels, snap

BATCH, POSITIONS, PIXELS = 3, 4, 64
DIMENSION = POSITIONS * (BATCH - 1)


def normal(*shape, seed):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draws, dtype=torch.float64)


@pytest.fixture
def truth():
    """Integer patches (batch, positions, pixels)."""
    draws = torch.Generator().manual_seed(0)
    shape = (BATCH, POSITIONS, PIXELS)
    return torch.randint(0, 256, shape, generator=draws).double()


def sets_of(truth, precision=1e-5):
    """The sets that hold the true patches, up to an error of their offsets in levels."""
    differences = (truth[1:] - truth[0]).flatten(0, 1).T
    directions = torch.linalg.qr(differences @ normal(*[differences.shape[1]] * 2, seed=4))[0]
    offsets = truth[0] - truth[0] @ directions @ directions.T
    off = precision * normal(*offsets.shape, seed=1)
    zeros = torch.zeros(POSITIONS), torch.zeros(directions.shape[1])
    return AffineSets(offsets + off - off @ directions @ directions.T, directions, *zeros)


def estimates(truth, sets, errors):
    """The truth with an error along the directions, (dimension,) or a number, in levels a pixel."""
    errors = errors * normal(*truth.shape[:2], sets.dimension, seed=2)
    return truth + errors * (PIXELS / sets.dimension) ** 0.5 @ sets.directions.T


def test_short_vectors_generate_the_differences_of_the_images(truth, draw):
    sets = sets_of(truth)
    metric = torch.eye(DIMENSION).double() / (50 * (PIXELS / DIMENSION) ** 0.5)
    lattice = reduce_pixels(sets.directions, metric, precision=1e-5, extra=20, generator=draw)
    found = lattice.differences()
    assert found.shape == (DIMENSION, PIXELS)
    true = (truth[1:] - truth[0]).flatten(0, 1)
    combination = torch.linalg.lstsq(found.T, true.T).solution
    torch.testing.assert_close(combination, combination.round())


@pytest.mark.parametrize("error", [0.3, 3.0, 10.0])
def test_an_estimate_levels_away_becomes_the_exact_patches(truth, draw, error):
    sets = sets_of(truth)
    given = estimates(truth, sets, error)
    assert not torch.equal(given.round(), truth)
    snapped = snap(given, sets, errors=[error], generator=draw)
    assert torch.equal(snapped.patches, truth)
    assert snapped.whole.all()


def test_rounding_is_enough_below_half_a_level_without_python_flint(truth, draw, monkeypatch):
    monkeypatch.setitem(sys.modules, "flint", None)
    sets = sets_of(truth)
    snapped = snap(estimates(truth, sets, 0.05), sets, generator=draw)
    assert torch.equal(snapped.patches, truth)
    with pytest.raises(BenchmarkError, match=r"^lattices want python-flint.*gradleak\[lattice\]'$"):
        snap(estimates(truth, sets, 3.0), sets, generator=draw)


def test_sets_of_one_image_are_points_that_rounding_meets(truth, draw):
    alone = truth[:1]
    sets = sets_of(alone)
    assert sets.dimension == 0
    given = alone + 0.1 * normal(*alone.shape, seed=3).clamp(-1, 1)
    given[0, 0, 0] += 1  # and here it misses
    snapped = snap(given, sets, generator=draw)
    assert snapped.whole.tolist() == [[False, True, True, True]]
    assert torch.equal(snapped.patches[0, 1:], alone[0, 1:])
    assert torch.equal(snapped.patches[0, 0], given[0, 0])


def test_sets_that_are_too_coarse_change_nothing(truth, draw):
    given = estimates(truth, sets_of(truth), 3.0)
    snapped = snap(given, sets_of(truth, precision=0.5), generator=draw)
    assert not snapped.whole.any()
    assert torch.equal(snapped.patches, given)


def test_an_image_s_metric_finds_what_alike_directions_miss(truth, draw):
    sets = sets_of(truth, precision=1e-3)
    spread = torch.tensor([100.0] + [0.3] * (DIMENSION - 1)).double()
    given = estimates(truth, sets, spread)
    alike = snap(given, sets, errors=[30.0], extras=[6], generator=draw)
    metrics = [torch.diag(1 / spread)] * BATCH
    known = snap(given, sets, metrics=metrics, errors=[30.0], extras=[6], generator=draw)
    assert torch.equal(known.patches, truth)
    assert not alike.whole.all()


def test_patches_outside_the_levels_are_not_taken(truth, draw):
    sets = sets_of(truth + 200)
    assert not snap(truth + 200, sets, generator=draw).whole.any()
