"""Image identifiability precision: whose image a reconstruction is."""

import pytest
import torch

from benchmark.metrics import METRICS, Candidates, ImageScorer, candidate_rows, pixels
from benchmark.metrics import iip as module
from benchmark.metrics.iip import iip


@pytest.fixture
def split(draw):
    """200 images of 40 people, people far apart and their images near, (200, 1, 12, 12)."""
    people = torch.rand(40, 1, 12, 12, generator=draw)
    spread = 0.02 * torch.rand(40, 5, 1, 12, 12, generator=draw)
    return (people[:, None] + spread).flatten(0, 1).clamp(0, 1)


@pytest.fixture
def labels():
    return torch.arange(40).repeat_interleave(5)


@pytest.fixture
def candidates(split):
    return Candidates(split.__getitem__, torch.arange(200), pixels)


def test_each_image_is_found_by_itself(split, candidates):
    assert [iip(image, image, candidates) for image in split] == [1] * 200


def test_reconstruction_nearest_to_its_truth_is_identified_and_to_another_is_not(split, candidates):
    near, far = 0.9 * split[7] + 0.1 * split[8], 0.4 * split[7] + 0.6 * split[8]
    assert (iip(split[7], near, candidates), iip(split[7], far, candidates)) == (1, 0)


def test_answer_is_that_of_the_nearest_neighbour_by_hand(split, candidates, draw):
    noise = torch.randn(200, 1, 12, 12, generator=draw)
    found = []
    for i, image in enumerate((split + 0.15 * noise).clamp(0, 1)):
        nearest = int((split - image).square().sum((1, 2, 3)).argmin())
        assert iip(split[i], image, candidates) == (nearest == i)
        found.append(nearest == i)
    assert 20 < sum(found) < 180  # both answers occur


def test_truth_that_was_not_drawn_is_a_candidate_too(split):
    others = Candidates(split.__getitem__, torch.arange(1, 200), pixels)
    assert iip(split[0], split[0], others) == 1
    assert iip(split[0], split[5], others) == 0


def test_tie_with_another_image_is_no_match():
    grey = torch.tensor([0.2, 0.6]).view(2, 1, 1, 1)
    two = Candidates(grey.__getitem__, torch.arange(2), lambda images: 5 * images.flatten(1))
    between, nearer = torch.tensor([0.4, 0.39]).view(2, 1, 1, 1)
    assert (iip(grey[0], between, two), iip(grey[0], nearer, two)) == (0, 1)


def test_rounding_of_the_truth_s_own_features_makes_it_no_other_image(split):
    def rounded(images):  # otherwise in a batch than alone
        return pixels(images) * (1 + 1e-6 * len(images))

    candidates = Candidates(split.__getitem__, torch.arange(200), rounded)
    assert all(iip(image, image * (1 + 5e-5), candidates) == 1 for image in split)


def test_score_of_a_batch_is_the_ratio_of_exact_matches(split, candidates):
    scorer = ImageScorer(("iip",), (0.2,), candidates=candidates)
    batch = split[[0, 50, 100, 150]]
    answer = batch.clone()
    answer[3] = split[151]
    assert scorer.score(batch, answer[[3, 1, 0, 2]]) == {"iip": 0.75}
    assert METRICS["iip"].better == "higher"


def test_iip_without_an_embedding_is_none(split):
    assert ImageScorer(("iip",), (0.2,)).score(split[:1], split[:1]) == {"iip": None}


def test_candidates_are_embedded_once_and_a_few_at_a_time(split):
    asked = []

    def images(rows):
        asked.append(len(rows))
        return split[rows]

    candidates = Candidates(images, torch.arange(200), pixels)
    assert not asked
    for image in split[:3]:
        iip(image, image, candidates)
    assert sum(asked) == 200
    assert max(asked) <= 64


def test_small_split_is_drawn_whole(labels):
    rows = candidate_rows(labels, torch.Generator().manual_seed(0))
    assert torch.equal(rows, torch.arange(200))


def test_large_split_gives_an_image_of_each_person_before_a_second_one(labels, monkeypatch):
    for most, people, twice in ((30, 30, 0), (40, 40, 0), (45, 40, 5)):
        monkeypatch.setattr(module, "MOST_CANDIDATES", most)
        rows = candidate_rows(labels, torch.Generator().manual_seed(0))
        counts = labels[rows].bincount(minlength=40)
        assert len(rows.unique()) == most
        assert ((counts > 0).sum(), (counts - 1).clamp(min=0).sum()) == (people, twice)
        other = candidate_rows(labels, torch.Generator().manual_seed(1))
        assert not torch.equal(rows, other)


def test_pixels_are_averaged_to_32_at_most(split):
    assert torch.equal(pixels(split), split.flatten(1))
    large = torch.rand(2, 3, 64, 96)
    wanted = large.view(2, 3, 32, 2, 32, 3).mean((3, 5)).flatten(1)
    torch.testing.assert_close(pixels(large), wanted, rtol=1e-5, atol=1e-6)
