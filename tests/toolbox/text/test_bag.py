"""Words are counted as they occur, on victims small enough for a test."""

import pytest
import torch

from benchmark.contract import TextBatch, Update
from benchmark.errors import NotApplicable
from benchmark.toolbox.text.bag import bag, check_bag
from benchmark.victims import TextSpec, build

VOCABULARY, LENGTH, MASK = 2000, 12, 3


def make(architecture):
    sizes = {"width": 128, "depth": 2, "heads": 4, "mlp": 128}
    spec = TextSpec(
        architecture=architecture,
        vocabulary=VOCABULARY,
        length=LENGTH,
        mask_token=MASK if architecture == "bert_base" else None,
        **sizes,
    )
    return build(spec, torch.Generator().manual_seed(0))


def sent(model, sequences, seed=0):
    """Return a batch of frequent and rare tokens and its update."""
    draws = torch.Generator().manual_seed(seed)
    rare = torch.randint(4, VOCABULARY, (sequences, LENGTH), generator=draws)
    frequent = torch.randint(4, 12, (sequences, LENGTH), generator=draws)
    often = torch.rand(sequences, LENGTH, generator=draws) < 0.4
    tokens = torch.where(often, frequent, rare)
    masked = None
    if model.masked:
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, ::4] = True
    batch, parameters = TextBatch(tokens, masked), model.weights()
    gradients = torch.autograd.grad(model.loss(batch), list(parameters.values()))
    return batch, Update(dict(zip(parameters, gradients, strict=True)))


def share(found, batch):
    """Return the share of tokens whose number is right."""
    counts = [torch.bincount(t.flatten(), minlength=VOCABULARY) for t in (found, batch.tokens)]
    return float(torch.minimum(*counts).sum() / batch.tokens.numel())


CAUSAL = ["transformer3", "gpt2"]


def test_every_token_of_one_sequence_is_counted():
    model = make("transformer3")
    batch, update = sent(model, 1)
    assert torch.equal(bag(update, model, LENGTH), batch.tokens.flatten().sort().values)


# a narrow GPT-2 tells less: what its labels follow on differs more from the mean of it
@pytest.mark.parametrize(("architecture", "least"), [("transformer3", 0.95), ("gpt2", 0.85)])
def test_labels_of_many_sequences_are_counted_but_for_a_few(architecture, least):
    model = make(architecture)
    batch, update = sent(model, 16)
    found = bag(update, model, 16 * LENGTH, sequences=16)
    assert len(found) == 16 * LENGTH
    assert share(found, batch) > least


def test_masked_and_read_tokens_are_counted_together():
    model = make("bert_base")
    batch, update = sent(model, 4)
    assert share(bag(update, model, 4 * LENGTH, sequences=4), batch) > 0.6


@pytest.mark.parametrize("architecture", [*CAUSAL, "bert_base"])
def test_no_word_is_counted_that_does_not_occur(architecture):
    model = make(architecture)
    batch, update = sent(model, 4)
    found = bag(update, model, 4 * LENGTH, sequences=4)
    assert set(found.tolist()) <= set(batch.tokens.flatten().tolist())


def test_a_first_token_that_is_no_label_is_counted():
    model = make("gpt2")
    batch, update = sent(model, 2)
    (first,) = set(batch.tokens[:, 0].tolist()) - set(batch.tokens[:, 1:].flatten().tolist())
    assert first in bag(update, model, 2 * LENGTH, sequences=2)


def test_an_update_of_zeros_is_counted_as_some_tokens():
    for architecture in (*CAUSAL, "bert_base"):
        model = make(architecture)
        zero = Update({name: torch.zeros_like(t) for name, t in model.weights().items()})
        found = bag(zero, model, 2 * LENGTH, sequences=2)
        assert found.shape == (2 * LENGTH,)
        assert found.min() >= 0
        assert found.max() < VOCABULARY


def test_a_withheld_gradient_is_named():
    model = make("transformer3")
    _, update = sent(model, 1)
    check_bag(update, model)
    with pytest.raises(NotApplicable, match=r"no gradient of decoder\.bias"):
        check_bag(update.without("decoder.bias"), model)
