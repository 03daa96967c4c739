import pytest
import torch

from benchmark.contract import TextBatch
from benchmark.seeds import generator
from benchmark.toolbox.text.imprint import imprint
from benchmark.toolbox.text.layout import layout
from benchmark.toolbox.text.readout import Pairs, is_noised, read, rungs
from benchmark.victims import TextSpec, build, weights

ENTRIES = 60
FIELDS = ("rung", "position", "token")


def random(*shape, name="random"):
    return torch.randn(*shape, generator=generator(0, name))


@pytest.fixture
def pairs():
    return Pairs(random(50, ENTRIES, name="tokens"), random(12, ENTRIES, name="positions"))


def mixtures(pairs, count, number=40):
    """Return rungs that hold `count` pairs each, and these as sets."""
    draw = generator(0, "mixtures", count)
    position = torch.randint(12, (number, count), generator=draw)
    token = torch.stack([torch.randperm(50, generator=draw)[:count] for _ in range(number)])
    factor = 1 + 0.3 * torch.rand(number, count, generator=draw)
    vectors = (factor[:, :, None] * pairs.sums(position, token)).sum(1)
    couples = zip(position.tolist(), token.tolist(), strict=True)
    return vectors, [set(zip(*couple, strict=True)) for couple in couples]


def test_scores_are_those_of_all_sums_formed(pairs):
    vectors = random(5, ENTRIES, name="vectors")
    sums = pairs.positions[:, None] + pairs.tokens  # (12, 50, entries)
    shares = torch.cosine_similarity(vectors[:, None, None], sums, dim=3).square()
    values, tokens = pairs.scores(vectors)
    assert torch.allclose(values, shares.amax(2), atol=1e-5)
    assert torch.equal(tokens, shares.argmax(2))


def test_what_a_basis_explains_is_not_counted_again(pairs):
    vectors = random(5, ENTRIES, name="vectors")
    basis = torch.linalg.qr(random(5, ENTRIES, 2, name="basis")).Q
    whole = torch.eye(ENTRIES) - basis @ basis.mT
    rest = (whole @ vectors[:, :, None])[:, :, 0]
    sums = (pairs.positions[:, None] + pairs.tokens).flatten(0, 1)
    off = torch.einsum("nij,aj->nai", whole, sums)
    shares = torch.cosine_similarity(rest[:, None], off, dim=2).square().unflatten(1, (12, 50))
    shares *= (rest.square().sum(1) / vectors.square().sum(1))[:, None, None]
    values, tokens = pairs.scores(vectors, basis)
    assert torch.allclose(values, shares.amax(2), atol=1e-5)
    assert torch.equal(tokens, shares.argmax(2))


@pytest.mark.parametrize("count", [1, 2, 3])
def test_several_tokens_on_one_rung_are_told_apart(pairs, count):
    vectors, wanted = mixtures(pairs, count)
    alone, known = mixtures(pairs, 1)
    blocks = torch.zeros(2 * len(vectors), dtype=torch.int64)
    readings = read(torch.cat([alone, vectors]), blocks, pairs)
    found = [set() for _ in blocks]
    for rung, position, token in zip(
        *(readings.where(readings.exact).__dict__[name].tolist() for name in FIELDS), strict=True
    ):
        found[rung].add((position, token))
    right = [one == other for one, other in zip(found, [*known, *wanted], strict=True)]
    assert sum(right) >= len(right) - 1
    assert all(one <= other for one, other in zip(found, [*known, *wanted], strict=True))


def test_what_no_few_pairs_explain_is_not_read_as_exact(pairs):
    junk = random(10, ENTRIES, name="junk")
    alone, _ = mixtures(pairs, 1)
    blocks = torch.zeros(len(junk) + len(alone), dtype=torch.int64)
    readings = read(torch.cat([alone, junk]), blocks, pairs)
    assert set(readings.rung[~readings.exact].tolist()) == set(range(40, 50))
    assert (readings.count[~readings.exact] == 1).all()


def imprinted(activation):
    spec = TextSpec(
        architecture="transformer3", activation=activation, vocabulary=200, length=24, mlp=400
    )
    model = build(spec, generator(0, "victim"))
    public = torch.randint(200, (60, 24), generator=generator(0, "public"))
    imprint(model, public, generator(0, "imprint"))
    tokens = torch.randint(199, (3, 24), generator=generator(0, "text"))
    named = model.weights()
    gradients = torch.autograd.grad(model.loss(TextBatch(tokens)), named.values())
    return model, tokens, dict(zip(named, gradients, strict=True))


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_every_token_that_sends_gradient_is_read_in_its_place(activation):
    model, tokens, update = imprinted(activation)
    parts, known = model.anatomy, weights(model)
    content = layout(parts).content
    tables = [known[parts.token_embedding][:, content], known[parts.position][:23, content]]
    pairs = Pairs(*(rows - rows.mean(1, keepdim=True) for rows in tables))
    vectors, blocks = rungs(update, model, 69)
    vectors = vectors[:, content] - vectors[:, content].mean(1, keepdim=True)
    readings = read(vectors, blocks, pairs)
    exact = readings.where(readings.exact)
    found = set(zip(exact.position.tolist(), exact.token.tolist(), strict=True))
    places = torch.arange(23).repeat(3).tolist()
    assert found == set(zip(places, tokens[:, :-1].flatten().tolist(), strict=True))
    assert set(blocks.tolist()) == {0, 1, 2}


def test_noise_on_what_nothing_reads_is_noticed():
    model, _, update = imprinted("relu")
    assert not is_noised(update, model)
    noisy = {name: tensor + 1e-9 * torch.randn_like(tensor) for name, tensor in update.items()}
    assert is_noised(noisy, model)
