import pytest
import torch

from benchmark.contract import TextBatch
from benchmark.seeds import generator
from benchmark.victims import TextSpec, build
from submissions.attacks.decepticon.bins import Bins
from submissions.attacks.decepticon.imprint import imprint
from submissions.attacks.decepticon.pairs import Pairs
from submissions.attacks.decepticon.readout import read
from submissions.attacks.decepticon.tables import Tables

ENTRIES = 60
FIELDS = ("bin", "position", "token")


def random(*shape, name="random"):
    return torch.randn(*shape, generator=generator(0, name))


@pytest.fixture
def pairs():
    return Pairs(random(50, ENTRIES, name="tokens"), random(12, ENTRIES, name="positions"))


def mixtures(pairs, count, number=40):
    """Return vectors that hold `count` pairs each, and these as sets."""
    draw = generator(0, "mixtures", count)
    position = torch.randint(12, (number, count), generator=draw)
    token = torch.stack([torch.randperm(50, generator=draw)[:count] for _ in range(number)])
    factor = 1 + 0.3 * torch.rand(number, count, generator=draw)
    vectors = (factor[:, :, None] * pairs.sums(position, token)).sum(1)
    couples = zip(position.tolist(), token.tolist(), strict=True)
    return vectors, [set(zip(*couple, strict=True)) for couple in couples]


def read_all(vectors, pairs):
    bins = Bins(vectors, vectors, torch.zeros(len(vectors), dtype=torch.int64))
    return read(bins, pairs, pairs.scores(vectors), masked=False)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_several_tokens_in_one_bin_are_told_apart(pairs, count):
    vectors, wanted = mixtures(pairs, count)
    alone, known = mixtures(pairs, 1)
    readings = read_all(torch.cat([alone, vectors]), pairs)
    found = [set() for _ in range(2 * len(vectors))]
    for here, position, token in zip(
        *(readings.where(readings.exact).__dict__[name].tolist() for name in FIELDS), strict=True
    ):
        found[here].add((position, token))
    right = [one == other for one, other in zip(found, [*known, *wanted], strict=True)]
    assert sum(right) >= len(right) - 1
    assert all(one <= other for one, other in zip(found, [*known, *wanted], strict=True))


def test_what_no_few_pairs_explain_is_not_read_as_exact(pairs):
    junk = random(10, ENTRIES, name="junk")
    alone, _ = mixtures(pairs, 1)
    readings = read_all(torch.cat([alone, junk]), pairs)
    assert set(readings.bin[~readings.exact].tolist()) == set(range(40, 50))
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
    tables = Tables.of(update, model, 24)
    bins, pairs = Bins.of(update, tables, 69), tables.pairs()
    readings = read(bins, pairs, pairs.scores(bins.content), masked=False)
    exact = readings.where(readings.exact)
    words = tables.words[exact.token].tolist()
    found = set(zip(exact.position.tolist(), words, strict=True))
    places = torch.arange(23).repeat(3).tolist()
    assert found == set(zip(places, tokens[:, :-1].flatten().tolist(), strict=True))
    assert set(bins.blocks.tolist()) == {0, 1, 2}


def test_noise_on_what_nothing_reads_is_noticed():
    model, _, update = imprinted("relu")
    assert not Tables.of(update, model, 24).noised
    noisy = {name: tensor + 1e-9 * torch.randn_like(tensor) for name, tensor in update.items()}
    assert Tables.of(noisy, model, 24).noised
