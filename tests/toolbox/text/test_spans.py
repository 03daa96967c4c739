"""The spans of two attentions tell tokens and sequences from all others."""

import pytest
import torch
from torch import nn

from benchmark.contract import TextBatch, Update
from benchmark.errors import NotApplicable
from benchmark.toolbox.text.spans import (
    CLEAR,
    TextEntrance,
    attention_span,
    check_spans,
    label_places,
    label_scores,
    off_span,
    predicted_places,
    token_candidates,
)
from benchmark.victims import TextSpec, build

VOCABULARY, LENGTH, MASK = 300, 8, 3
ARCHITECTURES = ["transformer3", "gpt2", "bert_base"]


def make(architecture):
    spec = TextSpec(
        architecture=architecture,
        vocabulary=VOCABULARY,
        length=2 * LENGTH,
        mask_token=MASK if architecture == "bert_base" else None,
        width=64,
        depth=2,
        heads=4,
        mlp=128,
    )
    model = build(spec, torch.Generator().manual_seed(0))
    for name, parameter in model.named_parameters():  # norms as after training, not at their start
        if "ln_" in name or "norm" in name.lower():
            draws = torch.Generator().manual_seed(len(name))
            parameter.data += 0.2 * torch.randn(parameter.shape, generator=draws)
    return model


def sent(model, sequences):
    """Return what a victim read, its batch and its update."""
    draws = torch.Generator().manual_seed(5)
    tokens = torch.randint(4, VOCABULARY, (sequences, LENGTH), generator=draws)
    masked, read = None, tokens
    if model.masked:
        masked = torch.zeros_like(tokens, dtype=torch.bool)
        masked[:, 2], masked[:, 5] = True, True
        read = tokens.masked_fill(masked, MASK)
    batch, parameters = TextBatch(tokens, masked), model.weights()
    gradients = torch.autograd.grad(model.loss(batch), list(parameters.values()))
    return read, batch, Update(dict(zip(parameters, gradients, strict=True)))


def span_of(model, update, block, sequences):
    rank = predicted_places(model, sequences, LENGTH)
    return attention_span(update, model, block, rank, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_true_tokens_leave_nothing_and_others_much(architecture):
    model = make(architecture)
    read, _, update = sent(model, 1)
    span = span_of(model, update, 0, 1)
    places = span.shape[1]
    tokens, off = token_candidates(model, span, places, 2)
    assert torch.equal(tokens[:, 0], read[0, :places])
    assert off[:, 0].max() < 1e-4
    assert off[:, 1].min() > 0.05


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_residuals_from_inner_products_are_those_of_the_inputs_themselves(architecture):
    model = make(architecture)
    span = torch.linalg.qr(torch.randn(64, 5, dtype=torch.float64))[0]
    tokens, off = token_candidates(model, span, LENGTH, 3)
    owner = model.anatomy.blocks[0].value.weight.name.rpartition(".")[0]
    given = []
    model.network.get_submodule(owner).register_forward_pre_hook(lambda _, x: given.append(x[0]))
    for rank in range(3):
        with torch.no_grad():
            model(tokens[None, :, rank])
        wanted = off_span(span, given[-1][0]).norm(dim=1)
        assert torch.allclose(off[:, rank], wanted, atol=1e-5)
        inputs = TextEntrance.of(model, LENGTH).inputs(tokens)[:, rank]
        assert torch.allclose(inputs.float(), given[-1][0], atol=1e-5)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_that_are_labels_alone_are_told_by_the_decoder(architecture):
    model = make(architecture)
    read, batch, update = sent(model, 3)
    places = label_places(model, read)
    scores = label_scores(update, model, read, places)
    assert torch.equal(scores.argmax(0), batch.tokens[places])
    unread = torch.ones(VOCABULARY, dtype=torch.bool)
    unread[read] = False
    best, second = scores[unread].topk(2, dim=0).values
    assert (best - best.round()).abs().max() < 1e-3
    assert second.max() < 1e-3


def test_noise_leaves_no_token_clear():
    model = make("gpt2")
    _, _, update = sent(model, 1)
    draws = torch.Generator().manual_seed(0)
    noised = Update({n: g + torch.randn(g.shape, generator=draws) for n, g in update.items()})
    span = span_of(model, noised, 0, 1)
    _, off = token_candidates(model, span, LENGTH - 1, span.shape[1] + 2)
    assert not (off[:, 0] < CLEAR * off[:, -1]).any()


def test_what_makes_the_spans_useless_is_named():
    model = make("gpt2")
    _, _, update = sent(model, 1)
    check_spans(update, model, 4, LENGTH, blocks=2)
    with pytest.raises(NotApplicable, match="70 places span the whole width of 64"):
        check_spans(update, model, 10, LENGTH, blocks=2)
    with pytest.raises(NotApplicable, match="predict nothing"):
        check_spans(update, model, 1, 1, blocks=1)
    with pytest.raises(NotApplicable, match="told apart by the second"):
        check_spans(update, model, 2, LENGTH, blocks=3)
    name = "transformer.h.1.attn.c_attn.weight"
    with pytest.raises(NotApplicable, match=r"no gradient of transformer\.h\.1"):
        check_spans(update.without(name), model, 2, LENGTH, blocks=2)
    check_spans(update.without(name), model, 1, LENGTH, blocks=1)
    with pytest.raises(NotApplicable, match="reads no text"):
        check_spans(update, nn.Linear(2, 2), 1, LENGTH, blocks=1)
