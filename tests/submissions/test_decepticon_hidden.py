"""Whether an imprint that is hidden passes inspection, and whether it is read all the same."""

import pytest
import torch

from benchmark.api import NotApplicable, RefusedError
from benchmark.contract import Budget, Knowledge, Observation, TextBatch, Update
from benchmark.registry import Registry
from benchmark.seeds import generator
from benchmark.victims import TextSpec, build, weights
from submissions.attacks.decepticon.layout import Layout
from submissions.attacks.decepticon_hidden.hiding import apart, cancelling
from submissions.defenses.parameter_inspection.defense import ParameterInspection

LENGTH = 20


def attack(name):
    return Registry().find("attack", name)[0].build()


def text(sequences, name="text"):
    """Return tokens as uneven as those of a language: few make up most of it."""
    return (10 + 280 * torch.rand(sequences, LENGTH, generator=generator(0, name)) ** 3).long()


def sent(name, architecture, **settings):
    """Return the model that a server sends."""
    sizes = {"width": 96, "depth": 3, "heads": 8, "mlp": 384, "vocabulary": 300, "length": LENGTH}
    spec = TextSpec(architecture=architecture, **{**sizes, **settings})
    known = Knowledge(batch_size=1, length=LENGTH, public_text=text(100, "public"))
    model = build(spec, generator(0, "victim"))
    return attack(name).corrupt(model, known, generator(0, "server"))


def right(name, tokens, architecture, **settings):
    """Return the share of one update's tokens that are read, in the order of the sequences."""
    model = sent(name, architecture, **settings)
    named = model.weights()
    gradients = torch.autograd.grad(model.loss(TextBatch(tokens, None)), named.values())
    update = Update(dict(zip(named, gradients, strict=True)))
    known = Knowledge(batch_size=len(tokens), length=LENGTH)
    budget = Budget(seconds=60, memory_bytes=2**30)
    seen = Observation(update, model, known, budget, generator(0, "read"))
    found = attack(name).reconstruct(seen).tokens
    return float((tokens[:, None] == found).double().mean(2).amax(1).mean())


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("architecture", ["transformer3", "gpt2"])
def test_what_inspection_refuses_passes_once_it_is_hidden(architecture, activation):
    with pytest.raises(RefusedError, match="of its full rank"):
        ParameterInspection().inspect(sent("decepticon", architecture, activation=activation))
    for settings in ({}, {"width": 192, "mlp": 768}):
        model = sent("decepticon_hidden", architecture, activation=activation, **settings)
        ParameterInspection().inspect(model)


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("architecture", ["transformer3", "gpt2"])
@pytest.mark.parametrize("sequences", [1, 6])
def test_as_much_is_read_as_of_the_imprint_in_the_open(architecture, activation, sequences):
    tokens = text(sequences)
    hidden = right("decepticon_hidden", tokens, architecture, activation=activation)
    assert hidden >= right("decepticon", tokens, architecture, activation=activation) - 0.02
    assert hidden >= 0.95


def test_an_attention_is_silent_although_its_matrices_are_full():
    model = sent("decepticon_hidden", "transformer3")
    parts, known = model.anatomy, weights(model)
    for block in parts.blocks[1:]:
        value, projection = (layer.weight.of(known) for layer in (block.value, block.projection))
        assert not (projection @ value).any()
        assert torch.linalg.matrix_rank(value) == torch.linalg.matrix_rank(projection) == 48


def test_dead_units_never_fire_and_the_others_see_nothing_of_the_filling():
    model = sent("decepticon_hidden", "transformer3")
    layout, block = Layout.of(model.anatomy, hidden=True), model.anatomy.blocks[1]
    first, bias = block.first.weight.of(weights(model)), block.first.bias.of(weights(model))
    inputs = torch.nn.functional.layer_norm(torch.randn(1000, 96), (96,))
    assert ((inputs @ first[-layout.dead :].T + bias[-layout.dead :]) < 0).all()
    shift = torch.zeros(96)
    shift[layout.blind] = 1
    assert (first[: -layout.dead] @ shift).abs().max() < 1e-5 * first[0].norm()


def test_what_cancels_adds_up_to_nothing_over_neighbours():
    rows = cancelling(apart(torch.randn(101, 16)))
    assert not rows[:8].any()
    assert not rows[96:].any()
    assert rows[8:96].unflatten(0, (-1, 8)).sum(1).abs().max() < 1e-5
    assert rows.sum(1).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("architecture", "settings"),
    [("bert_base", {"mask_token": 7}), ("gpt2", {"position": "sinusoidal"})],
)
def test_where_too_little_is_unseen_it_says_so(architecture, settings):
    with pytest.raises(NotApplicable, match="too little unseen"):
        sent("decepticon_hidden", architecture, **settings)
