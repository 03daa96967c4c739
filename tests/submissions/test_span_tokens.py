"""Whole sequences from honest gradients, on victims small enough for a test."""

import numpy as np
import pytest
import torch

from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.errors import NotApplicable
from benchmark.registry import Registry
from benchmark.victims import TextSpec, build

VOCABULARY, LENGTH, MASK = 400, 8, 3
CASES = [("transformer3", 1), ("transformer3", 4), ("gpt2", 1), ("gpt2", 4), ("bert_base", 1)]


def make(architecture, width=64, depth=2):
    spec = TextSpec(
        architecture=architecture,
        vocabulary=VOCABULARY,
        length=LENGTH,
        mask_token=MASK if architecture == "bert_base" else None,
        width=width,
        depth=depth,
        heads=4,
        mlp=4 * width,
    )
    return build(spec, torch.Generator().manual_seed(0))


def see(model, tokens, masked=None):
    """Return what an attacker sees of a batch."""
    batch, parameters = TextBatch(tokens, masked), model.weights()
    gradients = torch.autograd.grad(model.loss(batch), list(parameters.values()))
    return observed(model, Update(dict(zip(parameters, gradients, strict=True))), tokens.shape)


def observed(model, update, shape, later=()):
    known = Knowledge(batch_size=shape[0], length=shape[1])
    draws = torch.Generator().manual_seed(0)
    return Observation(update, model, known, Budget(60, 2**30), draws, later=later)


def written(sequences, seed=0):
    """Return sequences of a few frequent words and many rare ones, each its own."""
    draws = torch.Generator().manual_seed(seed)
    rare = torch.randint(10, VOCABULARY, (sequences, LENGTH), generator=draws)
    frequent = torch.randint(4, 10, (sequences, LENGTH), generator=draws)
    return torch.where(torch.rand(rare.shape, generator=draws) < 0.3, frequent, rare)


def some_masked(tokens):
    masked = torch.zeros_like(tokens, dtype=torch.bool)
    for row, places in enumerate(masked):
        places[[row % LENGTH, (row + 4) % LENGTH]] = True
    return masked


def attack():
    return Registry().find("attack", "span_tokens")[0].build()


def by_projectors():
    return Registry().find("attack", "span_tokens,grouping=projectors")[0].build()


def of_other_words(sequences, seed=0):
    """Return sequences in which no word stands twice."""
    draws = torch.Generator().manual_seed(seed)
    words = 10 + torch.randperm(VOCABULARY - 10, generator=draws)
    return words[: sequences * LENGTH].view(sequences, LENGTH)


def in_order(tokens):
    return sorted(tokens.tolist())


@pytest.mark.parametrize(("architecture", "sequences"), CASES)
def test_every_token_is_read_in_its_place(architecture, sequences):
    model, tokens = make(architecture), written(sequences)
    seen = see(model, tokens, some_masked(tokens) if model.masked else None)
    attack().applies(seen)
    answer = attack().reconstruct(seen)
    assert in_order(answer.tokens) == in_order(tokens)
    assert answer.gradient_evaluations == 0
    assert answer.certain.float().mean() > 0.8


def test_an_encoders_sequences_are_told_apart():
    model, tokens = make("bert_base", width=128), written(3)
    answer = attack().reconstruct(see(model, tokens, some_masked(tokens)))
    assert in_order(answer.tokens) == in_order(tokens)


def test_sequences_that_begin_alike_are_all_found():
    tokens = written(4)
    tokens[:3, :3] = tokens[0, :3]
    read = attack().reconstruct(see(make("gpt2"), tokens)).tokens[:, :-1]
    assert in_order(read) == in_order(tokens[:, :-1])


def test_what_is_certain_is_right_and_noise_makes_it_less():
    model, tokens = make("gpt2"), written(2)
    seen = see(model, tokens)
    shares = []
    for noise in (0.0, 1e-4, 1.0):
        draws = torch.Generator().manual_seed(1)
        noised = {
            name: g + noise * torch.randn(g.shape, generator=draws)
            for name, g in seen.update.items()
        }
        answer = attack().reconstruct(observed(model, Update(noised), tokens.shape))
        order = answer.tokens[:, :2].tolist()
        truth = [
            min(tokens, key=lambda row, o=o: int((row[:2] != torch.tensor(o)).sum())) for o in order
        ]
        wrong = answer.certain & (answer.tokens != torch.stack(truth))
        assert not wrong.any()
        shares.append(float(answer.certain.float().mean()))
    assert shares[0] > 0.8
    assert shares[2] < 0.2


def test_an_update_of_zeros_is_answered_without_certainty():
    for architecture, sequences in CASES:
        model = make(architecture)
        zero = Update({name: torch.zeros_like(t) for name, t in model.weights().items()})
        answer = attack().reconstruct(observed(model, zero, (sequences, LENGTH)))
        assert answer.tokens.shape == answer.certain.shape == (sequences, LENGTH)
        assert answer.tokens.dtype == torch.int64
        assert not answer.certain.any()


def test_a_batch_that_fills_the_width_is_declined():
    model, tokens = make("gpt2", width=32), written(5)
    with pytest.raises(NotApplicable, match="35 places span the whole width of 32"):
        attack().applies(see(model, tokens))


def test_one_block_tells_one_sequence_and_not_two():
    model = make("gpt2", depth=1)
    tokens = written(1)
    assert torch.equal(attack().reconstruct(see(model, tokens)).tokens, tokens)
    with pytest.raises(NotApplicable, match="told apart by the second"):
        attack().applies(see(model, written(2)))


def test_text_is_not_read_out_of_images(make_victim):
    victim = make_victim()
    with pytest.raises(NotApplicable, match="reads no text"):
        attack().applies(observed(victim, Update({}), (1, LENGTH)))


@pytest.mark.parametrize("architecture", ["transformer3", "gpt2"])
def test_the_first_attention_alone_groups_and_orders_words(architecture):
    tokens = of_other_words(4)
    seen = see(make(architecture, width=128), tokens)
    answer = by_projectors().reconstruct(seen)
    assert in_order(answer.tokens) == in_order(tokens)
    assert answer.certain.all()


def test_no_other_block_is_asked_where_the_first_attention_groups():
    model, tokens = make("gpt2", width=128, depth=1), of_other_words(3)
    seen = see(model, tokens)
    by_projectors().applies(seen)
    assert in_order(by_projectors().reconstruct(seen).tokens) == in_order(tokens)


def test_a_word_that_two_sequences_share_is_set_aside_and_put_back():
    tokens = of_other_words(4, seed=2)
    tokens[1, 3] = tokens[0, 3]
    answer = by_projectors().reconstruct(see(make("gpt2", width=128), tokens))
    assert in_order(answer.tokens) == in_order(tokens)
    assert not answer.certain.all()


def test_an_encoders_words_are_grouped_and_what_is_certain_is_right():
    model, tokens = make("bert_base", width=128), of_other_words(3)
    answer = by_projectors().reconstruct(see(model, tokens, some_masked(tokens)))
    whose = [int((row == truth).sum()) for row in answer.tokens for truth in tokens]
    best = torch.tensor(whose).view(3, 3).argmax(1)
    assert sorted(best.tolist()) == [0, 1, 2]
    assert (answer.tokens == tokens[best])[answer.certain].all()
    assert answer.certain.float().mean() > 0.3


def test_text_of_repeated_words_is_answered_without_certainty():
    tokens = 10 + torch.arange(LENGTH).repeat(3, 1)
    tokens[1] = tokens[1].roll(1)
    tokens[2] = tokens[2].roll(2)
    answer = by_projectors().reconstruct(see(make("gpt2", width=128), tokens))
    assert answer.tokens.shape == tokens.shape
    assert not answer.certain[:, :-1].any()


def test_the_grouping_by_projectors_wants_the_gradients_of_biases():
    model, tokens = make("gpt2"), of_other_words(2)
    seen = see(model, tokens)
    rest = {name: g for name, g in seen.update.items() if not name.endswith("c_attn.bias")}
    with pytest.raises(NotApplicable, match="no gradient of transformer"):
        by_projectors().applies(observed(model, Update(rest), tokens.shape))


def test_rounds_of_one_batch_are_averaged_so_that_noise_hides_less():
    model, tokens = make("gpt2"), written(1)
    update, draws = see(model, tokens).update, np.random.default_rng(1)
    noise = Registry().find("defense", "gaussian_noise,scale=0.3")[0].build()
    sent = [noise.protect_update(update, model, draws) for _ in range(64)]
    once, often = (
        attack().reconstruct(observed(model, sent[0], tokens.shape, later)).tokens == tokens
        for later in ((), tuple(sent[1:]))
    )
    assert once.float().mean() < 0.7 < often.float().mean()
