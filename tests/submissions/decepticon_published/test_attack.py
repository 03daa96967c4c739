"""What the published algorithms read of small victims."""

import copy

import pytest
import torch
from scipy.optimize import linear_sum_assignment

from benchmark import victims
from benchmark.api import NotApplicable, WithheldError
from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.seeds import generator
from submissions.attacks.decepticon_published.attack import DecepticonPublished

VOCABULARY, LENGTH, MASK = 3000, 20, 7
SIZES = {"width": 128, "depth": 3, "heads": 4, "mlp": 600}


def text(sequences, name="text"):
    """Return tokens as uneven as those of a language: few make up most of it."""
    draw = torch.rand(sequences, LENGTH, generator=generator(0, name))
    return (10 + (VOCABULARY - 20) * draw**3).long()


def build(architecture, **settings):
    mask = MASK if architecture == "bert_base" else None
    spec = {"vocabulary": VOCABULARY, "length": LENGTH, "mask_token": mask, **SIZES, **settings}
    return victims.build(
        victims.TextSpec(architecture=architecture, **spec), generator(0, "victim")
    )


def observe(attack, tokens, architecture="transformer3", scale=1.0, **settings):
    """Return what the server sees of one update, computed on the weights that it sent."""
    known = Knowledge(batch_size=len(tokens), length=LENGTH, public_text=text(100, "public"))
    sent = attack.corrupt(build(architecture, **settings), known, generator(0, "server"))
    masked = None
    if sent.masked:
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, 3::5] = True
    torch.manual_seed(0)
    sent.train(bool(settings.get("dropout")))
    named = sent.weights()
    gradients = torch.autograd.grad(sent.loss(TextBatch(tokens, masked)), named.values())
    update = {name: scale * tensor for name, tensor in zip(named, gradients, strict=True)}
    budget = Budget(seconds=60, memory_bytes=2**30)
    return Observation(Update(update), sent.eval(), known, budget, generator(0, "read"))


def scores(attack, tokens, architecture="transformer3", **settings):
    """Return the shares of tokens in place and of certain ones, and of these all that are right."""
    seen = observe(attack, tokens, architecture, **settings)
    attack.applies(seen)
    answer = attack.reconstruct(seen)
    assert answer.tokens.shape == answer.certain.shape == tokens.shape
    equal = (tokens[:, None] == answer.tokens).sum(2)
    _, order = linear_sum_assignment(equal.numpy(), maximize=True)
    right, certain = tokens == answer.tokens[order], answer.certain[order]
    return float(right.double().mean()), float(certain.double().mean()), bool(right[certain].all())


def test_every_token_of_a_short_sequence_is_read_exactly():
    assert scores(DecepticonPublished(), text(1), width=96, heads=8) == (1.0, 0.95, True)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize(("architecture", "least"), [("transformer3", 0.9), ("gpt2", 0.75)])
def test_most_tokens_of_several_sequences_are_read(architecture, least, activation):
    total, certain, _ = scores(DecepticonPublished(), text(6), architecture, activation=activation)
    assert total >= least
    assert certain >= 0.7


def test_much_of_a_masked_model_s_text_is_read():
    total, certain, _ = scores(DecepticonPublished(), text(6), "bert_base", activation="relu")
    assert total >= 0.4
    assert 0.4 <= certain <= 0.8  # masked places never are


def test_dropout_of_the_inputs_costs_some_tokens_and_not_all():
    chosen = {"architecture": "gpt2", "activation": "relu"}
    plain, _, _ = scores(DecepticonPublished(), text(6), **chosen)
    dropped, _, _ = scores(DecepticonPublished(), text(6), dropout=0.1, **chosen)
    assert 0.4 <= dropped < plain


def test_random_tokens_place_the_bins_as_well():
    attack = DecepticonPublished(measure="random_tokens")
    assert attack.needs < DecepticonPublished().needs
    assert scores(attack, text(1))[0] >= 0.95


def test_public_text_is_needed_where_it_is_measured():
    known = Knowledge(batch_size=1, length=LENGTH)
    with pytest.raises(WithheldError, match="public_text"):
        DecepticonPublished().corrupt(build("transformer3"), known, generator(0))


def test_a_scaled_update_reads_the_same():
    plain, scaled = (
        DecepticonPublished().reconstruct(observe(DecepticonPublished(), text(3), scale=scale))
        for scale in (1.0, 1e-3)
    )
    assert torch.equal(plain.tokens, scaled.tokens)


def test_an_update_of_zeros_names_no_token():
    seen = observe(DecepticonPublished(), text(2), scale=0.0)
    answer = DecepticonPublished().reconstruct(seen)
    assert (answer.tokens == -1).all()
    assert not answer.certain.any()


@pytest.mark.parametrize(
    "withheld", ["blocks.1.fc1.weight", "blocks.2.fc1.bias", "token_embedding.weight"]
)
def test_without_what_it_reads_it_is_not_applicable(withheld):
    seen = copy.copy(observe(DecepticonPublished(), text(1)))
    object.__setattr__(seen, "update", seen.update.without(withheld))
    with pytest.raises(NotApplicable, match=f"holds no gradient of {withheld}"):
        DecepticonPublished().applies(seen)


def test_a_width_without_room_is_declined():
    known = Knowledge(batch_size=1, length=LENGTH, public_text=text(10, "public"))
    model = build("transformer3", width=24, heads=6)
    with pytest.raises(NotApplicable, match="leaves no room"):
        DecepticonPublished().corrupt(model, known, generator(0))
