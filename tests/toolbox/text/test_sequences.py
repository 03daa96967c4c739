import pytest
import torch

from benchmark.seeds import generator
from benchmark.toolbox.text.sequences import chain, combination, distances, groups


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


def test_weighted_marks_of_a_shared_rung_are_taken_apart(known):
    weights = torch.tensor([1.1, 0.7, 1.3])
    marks = weights @ known[[4, 0, 6]]
    anywhere = torch.ones(3, 8, dtype=torch.bool)
    assert combination(marks, weights, known, anywhere, 1e-3).tolist() == [4, 0, 6]
    elsewhere = anywhere.clone()
    elsewhere[1, 0] = False
    assert combination(marks, weights, known, elsewhere, 1e-3) is None
    elsewhere[1] = False
    assert combination(marks, weights, known, elsewhere, 1e-3) is None


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


def test_each_token_follows_the_one_that_names_it():
    text = [[1, 2, 3, 4, 5], [1, 6, 3, 7, 8], [1, 9, 10, 11, 12]]
    codes = 1 + 0.3 * torch.rand(13, generator=generator(0, "codes"))
    made, sure = chained(text, codes)
    ends = {tuple(row[3:]) for row in made}
    assert ends == {(4, 5), (7, 8), (11, 12)}
    assert {tuple(row[:2]) for row in made} == {(1, 2), (1, 6), (1, 9)}
    assert sure


def test_a_chain_that_breaks_is_not_sure():
    text = [[1, 2, 3, 4], [5, 6, 7, 8]]
    codes = 1 + 0.3 * torch.rand(9, generator=generator(0, "codes"))
    assert chained(text, codes)[1]
    made, sure = chained(text, codes, labels=[1, 5])
    assert not sure
    assert {tuple(row[2:]) for row in made} == {(3, 4), (7, 8)}
