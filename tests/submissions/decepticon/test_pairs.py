"""What a pair of token and position explains, without any sum formed."""

import pytest
import torch

from benchmark.seeds import generator
from submissions.attacks.decepticon.pairs import Pairs

ENTRIES = 60


def random(*shape, name="random"):
    return torch.randn(*shape, generator=generator(0, name))


@pytest.fixture
def pairs():
    return Pairs(random(50, ENTRIES, name="tokens"), random(12, ENTRIES, name="positions"))


def test_scores_are_those_of_all_sums_formed(pairs):
    vectors = random(5, ENTRIES, name="vectors")
    sums = pairs.positions[:, None] + pairs.tokens  # (12, 50, entries)
    shares = torch.cosine_similarity(vectors[:, None, None], sums, dim=3).square()
    found = pairs.scores(vectors)
    assert torch.allclose(found.share, shares.amax(2), atol=1e-5)
    assert torch.equal(found.token, shares.argmax(2))


def test_what_a_basis_explains_is_not_counted_again(pairs):
    vectors = random(5, ENTRIES, name="vectors")
    basis = torch.linalg.qr(random(5, ENTRIES, 2, name="basis")).Q
    whole = torch.eye(ENTRIES) - basis @ basis.mT
    rest = (whole @ vectors[:, :, None])[:, :, 0]
    sums = (pairs.positions[:, None] + pairs.tokens).flatten(0, 1)
    off = torch.einsum("nij,aj->nai", whole, sums)
    shares = torch.cosine_similarity(rest[:, None], off, dim=2).square().unflatten(1, (12, 50))
    shares *= (rest.square().sum(1) / vectors.square().sum(1))[:, None, None]
    found = pairs.scores(vectors, basis)
    assert torch.allclose(found.share, shares.amax(2), atol=1e-5)
    assert torch.equal(found.token, shares.argmax(2))
