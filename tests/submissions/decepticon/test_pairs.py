"""What a pair of token and position explains, without any sum formed."""

from dataclasses import replace

import pytest
import torch

from benchmark.seeds import generator
from submissions.attacks.decepticon import pairs as module
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


@pytest.mark.parametrize("explained", [0, 1, 2])
@pytest.mark.parametrize("spread", [0.0, 1.0])  # with the one, few positions are beyond doubt
def test_of_many_tokens_a_few_are_tried_and_the_best_is_found(monkeypatch, explained, spread):
    sizes = (spread * random(400, 1, name="sizes")).exp()
    tokens, positions = sizes * random(400, ENTRIES, name="t"), random(12, ENTRIES, name="p")
    vectors = tokens[:9] + positions[:9] + random(9, ENTRIES, name="noise")
    basis = torch.linalg.qr(random(9, ENTRIES, explained, name="b")).Q if explained else None
    wanted = Pairs(tokens, positions).scores(vectors, basis)
    shortened = replace(module.CHOSEN, many_candidates=399, pair_ends=8, pair_cells=1600)
    monkeypatch.setattr(module, "CHOSEN", shortened)
    found = Pairs(tokens, positions)
    assert found.many
    found = found.scores(vectors, basis)
    assert torch.equal(found.token, wanted.token)
    torch.testing.assert_close(found.share, wanted.share)
