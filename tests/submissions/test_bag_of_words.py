"""The submission answers the counted words, whatever their places."""

import pytest
import torch

from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.errors import NotApplicable, WithheldError
from benchmark.registry import Registry
from benchmark.victims import TextSpec, build

SEQUENCES, LENGTH, VOCABULARY = 2, 8, 500


def make():
    spec = TextSpec(
        architecture="transformer3",
        vocabulary=VOCABULARY,
        length=LENGTH,
        width=32,
        heads=4,
        mlp=64,
    )
    return build(spec, torch.Generator().manual_seed(0))


def observed(model, update, **facts):
    draws = torch.Generator().manual_seed(0)
    return Observation(update, model, Knowledge(**facts), Budget(60, 2**30), draws)


@pytest.fixture
def seen():
    model, draws = make(), torch.Generator().manual_seed(2)
    tokens = torch.randint(VOCABULARY, (SEQUENCES, LENGTH), generator=draws)
    parameters = model.weights()
    gradients = torch.autograd.grad(model.loss(TextBatch(tokens)), list(parameters.values()))
    update = Update(dict(zip(parameters, gradients, strict=True)))
    return tokens, observed(model, update, batch_size=SEQUENCES, length=LENGTH)


@pytest.fixture
def attack():
    return Registry().find("attack", "bag_of_words")[0].build()


def test_the_answer_holds_the_words_of_the_batch(attack, seen):
    tokens, observation = seen
    attack.applies(observation)
    answer = attack.reconstruct(observation)
    assert answer.tokens.shape == tokens.shape
    assert sorted(answer.tokens.flatten().tolist()) == sorted(tokens.flatten().tolist())
    assert answer.certain is None
    assert answer.gradient_evaluations == 0


def test_an_update_without_the_table_is_declined(attack, seen):
    _, observation = seen
    less = observation.update.without("token_embedding.weight")
    with pytest.raises(NotApplicable, match=r"no gradient of token_embedding\.weight"):
        attack.applies(observed(observation.model, less, batch_size=SEQUENCES, length=LENGTH))


def test_the_length_has_to_be_granted(attack, seen):
    _, observation = seen
    withheld = observed(observation.model, observation.update, batch_size=SEQUENCES)
    with pytest.raises(WithheldError, match="length is not granted"):
        attack.reconstruct(withheld)
