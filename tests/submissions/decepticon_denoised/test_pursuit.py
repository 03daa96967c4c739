"""Tokens in places, out of rows with noise."""

import pytest
import torch

from benchmark.seeds import generator
from submissions.attacks.decepticon_denoised.atoms import Atoms
from submissions.attacks.decepticon_denoised.pursuit import Pursuit

PLACES, TOKENS, WIDTH, ROWS = 6, 50, 24, 80


@pytest.fixture
def atoms():
    draw = generator(0, "atoms")
    vectors = torch.randn(PLACES, TOKENS, WIDTH, generator=draw)
    return Atoms(vectors, torch.randint(1, ROWS, (PLACES, TOKENS), generator=draw))


@pytest.fixture
def tokens():
    return torch.tensor([3, 14, 15, 9, 26, 5])


def rows_of(atoms, tokens, factor):
    """Return the gradient (rows, width) of tokens in their places."""
    vectors, rows = atoms.chosen(tokens)
    return factor * (torch.arange(ROWS)[:, None] < rows).double() @ vectors.double()


def pursuit(atoms, rows, common=None):
    rows = rows + torch.randn(rows.shape, generator=generator(0, "noise"))
    sums = torch.cat([torch.zeros_like(rows[:1]), rows.cumsum(0)])
    common = torch.zeros(TOKENS).double() if common is None else common
    return Pursuit.of(atoms, sums, common)


def test_products_of_atoms_are_those_of_the_rows_they_stand_in(atoms, tokens):
    whole = rows_of(atoms, tokens, 1.0)
    assert float(atoms.products(tokens).sum()) == pytest.approx(float(whole.square().sum()))


def test_tokens_are_read_out_of_rows_of_which_each_is_noise(atoms, tokens):
    assert pursuit(atoms, rows_of(atoms, tokens, 0.3)).read(0.3).tolist() == tokens.tolist()


def test_a_factor_that_is_known_but_roughly_reads_the_same(atoms, tokens):
    found = pursuit(atoms, rows_of(atoms, tokens, 0.3))
    assert found.read(0.24).tolist() == tokens.tolist()
    assert found.mean_factor(tokens, 0.24) == pytest.approx(0.3, rel=0.05)


def test_scores_are_those_of_the_whole_formed(atoms, tokens):
    """Held against the density of a normal distribution, written out."""
    found, factor, spread = pursuit(atoms, rows_of(atoms, tokens, 0.3)), 0.3, 0.03
    scores = found.scores(2, tokens, factor, spread)
    data, wanted = found.sums.diff(dim=0).reshape(-1), []
    for token in (15, 16):
        every = tokens.clone()
        every[2] = token
        vectors, rows = atoms.chosen(every)
        steps = (torch.arange(ROWS) < rows[:, None]).double()
        columns = torch.einsum("pr,pw->rwp", steps, vectors.double()).reshape(-1, PLACES)
        covariance = columns @ columns.T * spread**2 + torch.eye(len(data))
        normal = torch.distributions.MultivariateNormal(factor * columns.sum(1), covariance)
        wanted.append(float(normal.log_prob(data)))
    assert float(scores[15] - scores[16]) == pytest.approx(wanted[0] - wanted[1], rel=1e-6)


def test_of_noise_alone_the_commonest_token_is_read(atoms):
    common = torch.full((TOKENS,), -30.0).double()
    common[7] = 0
    found = pursuit(atoms, torch.zeros(ROWS, WIDTH).double(), common)
    assert found.read(1e-3).tolist() == [7] * PLACES
