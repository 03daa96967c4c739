import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.seeds import generator
from submissions.attacks.decepticon.sequences import chain, combinations, distances, groups


def draw(*shape, name="marks"):
    return torch.randn(*shape, generator=generator(0, name))


@pytest.fixture
def known():
    return draw(8, 6)


def scattered(known, noise, copies=20):
    marks = known.repeat(copies, 1)
    return marks + noise * draw(*marks.shape, name="noise")


def paired(found, known):
    """Return how far each known row is from the nearest one found."""
    return distances(known, found).amin(1)


def test_distances_count_only_what_both_have():
    one = torch.tensor([[1.0, torch.nan, 3.0], [torch.nan, torch.nan, 0.0]])
    other = torch.tensor([[2.0, 5.0, torch.nan], [4.0, 0.0, 3.0]])
    wanted = torch.tensor([[1.0, (9 / 2) ** 0.5], [torch.inf, 3.0]])
    assert torch.allclose(distances(one, other), wanted)


def test_tight_marks_are_grouped_without_a_clustering(known):
    found = groups(scattered(known, 1e-4), 8)
    assert found.shape == known.shape
    assert paired(found, known).max() < 1e-3


def test_dropped_marks_do_not_hide_a_group(known):
    marks = scattered(known, 1e-4)
    dropped = torch.rand(marks.shape, generator=generator(0, "dropped")) < 0.1
    found = groups(marks.where(~dropped, torch.nan), 8)
    assert paired(found, known).max() < 1e-3


def test_sequences_that_begin_alike_make_one_group(known):
    assert len(groups(scattered(known[:5], 1e-4), 8)) == 5


def test_marks_of_one_token_alone_are_no_sequence_s(known):
    marks = torch.cat([scattered(known, 1e-4), 3 * draw(3, 6, name="odd")])
    assert paired(groups(marks, 8), known).max() < 1e-3


def test_noisy_marks_are_clustered(known):
    found = groups(scattered(known, 0.05), 8)
    assert paired(found, known).max() < 0.1


def test_one_sequence_is_one_group():
    assert groups(draw(10, 6), 1).shape == (1, 6)


def test_weighted_marks_of_a_shared_bin_are_taken_apart(known):
    weights, each = torch.tensor([1.1, 0.7, 1.3]), known.expand(3, -1, -1)
    marks = weights @ known[[4, 0, 6]]
    anywhere = torch.ones(3, 8, dtype=torch.bool)
    found, miss = combinations(marks, weights, each, anywhere, 1e-3)
    assert found.tolist() == [[4, 0, 6]]
    assert float(miss) < 0.1
    elsewhere = anywhere.clone()
    elsewhere[1, 0] = False
    assert combinations(marks, weights, each, elsewhere, 1e-3)[0].shape == (0, 3)
    elsewhere[1] = False
    assert combinations(marks, weights, each, elsewhere, 1e-3)[0].shape == (0, 3)


def test_all_sums_that_fit_are_found_the_best_first(known):
    weights, each = torch.tensor([1.0, 1.001]), known.expand(2, -1, -1)
    marks = weights @ known[[4, 6]]
    found, miss = combinations(marks, weights, each, torch.ones(2, 8, dtype=torch.bool), 1e-2)
    assert found.tolist() == [[4, 6], [6, 4]]
    assert 0 <= miss[0] < miss[1] < 1


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_sums_are_those_of_trying_everything(seed, count):
    own, weights = draw(count, 5, 2, name=f"{seed}"), 1 + draw(count, name=f"-{seed}").abs()
    allowed = draw(count, 5, name=f"allowed {seed}") > -0.5
    marks, least = draw(2, name=f"sum {seed}"), 0.2
    wanted = {
        groups
        for groups in itertools.product(*(row.nonzero()[:, 0].tolist() for row in allowed))
        if (sum(w * rows[g] for w, rows, g in zip(weights, own, groups, strict=True)) - marks)
        .square()
        .mean()
        .sqrt()
        < least * weights.sum()
    }
    found, miss = combinations(marks, weights, own, allowed, least)
    assert {tuple(row) for row in found.tolist()} == wanted
    assert miss.tolist() == sorted(miss.tolist())


def chained(text, codes, labels=None):
    """Return what `chain` makes of sequences of tokens, all tokens of a position shuffled."""
    length = len(text[0])
    positions = torch.arange(length).repeat(len(text))
    tokens = torch.tensor(text).flatten()
    nexts = torch.tensor([[*row[1:], 0] for row in text]).flatten()
    named = codes[nexts] + 1e-4 * draw(len(nexts), name="miss")
    if labels is not None:
        named[labels] = torch.nan
    order = torch.randperm(len(tokens), generator=generator(0, "order"))
    owners, sure = chain(positions[order], codes[tokens[order]], named[order], len(text), 1e-2)
    made = torch.full((len(text), length), -1)
    made[owners, positions[order]] = tokens[order]
    return made.tolist(), bool(sure.all())


CODES = 1 + 0.02 * torch.arange(14)  # farther apart than labels are missed


def test_each_token_follows_the_one_that_names_it():
    text = [[1, 2, 3, 4, 5], [1, 6, 13, 7, 8], [1, 9, 10, 11, 12]]
    made, sure = chained(text, CODES)
    assert sorted(made) == text
    assert sure


def test_a_chain_that_breaks_is_not_sure():
    text = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert chained(text, CODES)[1]
    made, sure = chained(text, CODES, labels=[1, 5])
    assert not sure
    assert {tuple(row[2:]) for row in made} == {(3, 4), (7, 8)}


@pytest.mark.parametrize("apart", [0.0, 1e-4])
def test_a_chain_on_which_two_fit_is_not_sure(apart):
    text = [[1, 2, 3, 4], [5, 6, 7, 8]]
    codes = CODES.clone()
    codes[7] = codes[3] + apart
    made, sure = chained(text, codes)
    assert not sure
    assert {tuple(row[2:]) for row in made} == {(3, 4), (7, 8)}
