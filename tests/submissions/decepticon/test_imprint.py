import pytest
import torch

from benchmark.contract import TextBatch
from benchmark.errors import NotApplicable
from benchmark.seeds import generator
from benchmark.toolbox.text.imprinting import given_to, measuring
from benchmark.victims import TextSpec, build, weights
from submissions.attacks.decepticon.imprint import imprint
from submissions.attacks.decepticon.layout import Layout

SMALL = {"width": 64, "depth": 3, "heads": 4, "mlp": 96, "vocabulary": 200, "length": 24}
ALL = ["transformer3", "gpt2", "bert_base"]


def victim(architecture, **settings):
    spec = TextSpec(architecture=architecture, mask_token=7, **SMALL | settings)
    return build(spec, generator(0, "victim"))


def text(sequences, length=24, name="text"):
    return torch.randint(10, 199, (sequences, length), generator=generator(0, name))


def imprinted(architecture, noise=0.0, **settings):
    model = victim(architecture, **settings)
    imprint(model, text(40, name="public"), generator(0, "imprint"), noise)
    return model, model.anatomy, weights(model)


def gradient(model, batch):
    named = model.weights()
    return dict(zip(named, torch.autograd.grad(model.loss(batch), named.values()), strict=True))


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
@pytest.mark.parametrize("architecture", ALL)
def test_every_measuring_block_is_given_the_same_content(architecture, position):
    model, parts, _ = imprinted(architecture, position=position)
    content = Layout.of(parts).content
    first, *others = (
        given_to(model, block.first.weight.name, text(3))[..., content]
        for block in parts.blocks[: measuring(parts)]
    )
    assert first.std() > 0.5
    for other in others:  # 0.004 at most: the small constant in each norm
        assert (other - first).abs().max() < 0.03


@pytest.mark.parametrize("position", ["learned", "sinusoidal"])
@pytest.mark.parametrize("architecture", ALL)
def test_marks_are_alike_within_a_sequence_and_differ_between_sequences(architecture, position):
    model, parts, _ = imprinted(architecture, position=position)
    layout = Layout.of(parts)
    values = given_to(model, parts.blocks[0].projection.weight.name, text(3))
    heads = values.unflatten(2, (parts.heads, -1))[:, :, : len(layout.anchors), : layout.share]
    seen = heads if parts.masked else heads[:, len(layout.anchors) - 1 :]
    assert (seen - seen[:, -1:]).abs().max() < 1e-5 * seen.abs().max()
    assert torch.pdist(seen[:, -1].flatten(1)).min() > 0.1 * seen.std()


def test_the_first_attention_passes_no_gradient_to_its_queries_and_keys():
    model, parts, _ = imprinted("transformer3")
    update = gradient(model, TextBatch(text(2)))
    block = parts.blocks[0]
    assert not block.query.weight.of(update).any()
    assert not block.key.weight.of(update).any()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_edges_ascend_and_a_block_begins_where_the_one_before_ends(activation):
    _, parts, known = imprinted("transformer3", activation=activation)
    edges = []
    for block in parts.blocks:
        rows, bias = block.first.weight.of(known), block.first.bias.of(known)
        assert torch.equal(rows, rows[:1].expand_as(rows))
        edges.append(-bias / rows[0].norm())
    assert all((edge.diff() > 0).all() for edge in edges)
    assert edges[0][-1] == edges[1][0]
    assert edges[1][-1] == edges[2][0]


def test_bins_hold_equal_shares_of_public_text():
    model, parts, known = imprinted("transformer3")
    first = parts.blocks[0].first
    direction = first.weight.of(known)[0] / first.weight.of(known)[0].norm()
    found = given_to(model, first.weight.name, text(200, name="other")) @ direction
    edge = torch.cat([-block.first.bias.of(known) for block in parts.blocks])
    edge = edge / first.weight.of(known)[0].norm()
    below = [(found < edge[int(q * (len(edge) - 1))]).float().mean() for q in (0.25, 0.5, 0.75)]
    assert torch.stack(below).numpy() == pytest.approx([0.25, 0.5, 0.75], abs=0.1)


def test_noise_gives_the_measurement_full_rank():
    ranks = []
    for noise in (0.0, 0.003):
        _, parts, known = imprinted("transformer3", noise)
        ranks.append(int(torch.linalg.matrix_rank(parts.blocks[0].first.weight.of(known))))
    assert ranks == [1, SMALL["width"]]


def test_decoder_s_bias_counts_the_labels():
    model, parts, _ = imprinted("transformer3")
    tokens = text(4)
    shares = -parts.decoder.bias.of(gradient(model, TextBatch(tokens)))
    labels = tokens[:, 1:].flatten()
    counts = torch.bincount(labels, minlength=200)[:-1]
    assert torch.allclose(shares[:-1] * len(labels), counts.float(), atol=1e-4)


@pytest.mark.parametrize("architecture", ALL)
def test_content_of_a_token_table_has_gradient_where_a_token_was_read_alone(architecture):
    model, parts, _ = imprinted(architecture)
    tokens = text(4)
    masked = torch.zeros_like(tokens, dtype=torch.bool)
    masked[:, 3] = True
    update = gradient(model, TextBatch(tokens, masked if parts.masked else None))
    read = tokens.masked_fill(masked, 7) if parts.masked else tokens[:, :-1]
    table = update[parts.token_embedding][:, Layout.of(parts).content]
    assert torch.equal(table.any(1).nonzero()[:, 0], read.unique())


@pytest.mark.parametrize(
    ("architecture", "settings", "reason"),
    [
        ("transformer3", {"width": 12}, "a width of 12 leaves no room for an imprint"),
        ("bert_base", {"depth": 1}, "one block sends no gradient to the tokens"),
    ],
)
def test_too_small_a_model_is_not_applicable(architecture, settings, reason):
    model = victim(architecture, **settings)
    with pytest.raises(NotApplicable, match=reason):
        imprint(model, text(1), generator(0))


def test_a_layer_s_input_is_read_without_dropout_and_training_goes_on():
    model = victim("transformer3", dropout=0.5).train()
    name = model.anatomy.blocks[1].first.weight.name
    assert torch.equal(given_to(model, name, text(2)), given_to(model, name, text(2)))
    assert model.training
