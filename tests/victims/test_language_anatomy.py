import pytest
import torch
from torch.nn import functional

from benchmark.errors import NotApplicable
from benchmark.seeds import generator
from benchmark.victims import TextSpec, TextVictim, build, weights

SMALL = {"width": 12, "depth": 2, "heads": 3, "mlp": 20, "vocabulary": 40, "length": 8}
NAMES = ["transformer3", "gpt2", "bert_base"]


@pytest.fixture(params=NAMES)
def name(request):
    return request.param


@pytest.fixture
def victim(name):
    mask_token = 3 if name == "bert_base" else None
    spec = TextSpec(architecture=name, mask_token=mask_token, activation="relu", **SMALL)
    victim = build(spec, generator(0, name))
    draw = generator(0, "weights")
    for tensor in weights(victim).values():  # no zero bias and no plain norm may hide a mistake
        if tensor.is_floating_point():
            tensor += 0.2 * torch.randn(tensor.shape, generator=draw)
    return victim


@pytest.fixture
def tokens():
    return torch.randint(40, (2, 6), generator=generator(0, "tokens"))


def forward(parts, tensors, tokens, eps):
    """Return logits from an anatomy and weights alone; every activation is a ReLU."""

    def norm(x, at):
        if at is None:
            return x
        scale, shift = tensors[f"{at}.weight"], tensors[f"{at}.bias"]
        return functional.layer_norm(x, scale.shape, scale, shift, eps)

    def linear(x, layer):
        bias = 0 if layer.bias is None else layer.bias.of(tensors)
        return x @ layer.weight.of(tensors).T + bias

    def attention(x, block):
        q, k, v = (
            linear(x, layer).unflatten(-1, (parts.heads, -1)).transpose(1, 2)
            for layer in (block.query, block.key, block.value)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if not parts.masked:
            scores = scores + torch.full(scores.shape[-2:], -torch.inf).triu(1)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)
        return linear(mixed, block.projection)

    def mlp(x, block):
        return linear(linear(x, block.first).relu(), block.second)

    x = tensors[parts.token_embedding][tokens] + tensors[parts.position][: tokens.shape[1]]
    if parts.token_types:
        x = x + tensors[parts.token_types][0]
    x = norm(x, parts.embedding_norm)
    for block in parts.blocks:
        if parts.pre_norm:
            x = x + attention(norm(x, block.attention_norm), block)
            x = x + mlp(norm(x, block.mlp_norm), block)
        else:
            x = norm(x + attention(x, block), block.attention_norm)
            x = norm(x + mlp(x, block), block.mlp_norm)
    x = norm(x, parts.final_norm)
    if parts.head_transform:
        x = norm(linear(x, parts.head_transform).relu(), parts.head_norm)
    return linear(x, parts.decoder)


def test_the_named_parts_alone_make_the_models_logits(victim, name, tokens):
    eps = 1e-12 if name == "bert_base" else 1e-5
    logits = forward(victim.anatomy, weights(victim), tokens, eps)
    torch.testing.assert_close(logits, victim(tokens), rtol=1e-4, atol=1e-4)


def test_every_trained_parameter_has_a_place(victim):
    parts = victim.anatomy
    norms = [parts.embedding_norm, parts.final_norm, parts.head_norm]
    layers = [parts.head_transform, parts.decoder]
    for block in parts.blocks:
        norms += [block.attention_norm, block.mlp_norm]
        layers += [block.query, block.key, block.value, block.projection]
        layers += [block.first, block.second]
    found = {parts.token_embedding, parts.position, parts.token_types}
    found |= {f"{at}.{end}" for at in norms if at for end in ("weight", "bias")}
    found |= {part.name for at in layers if at for part in (at.weight, at.bias) if part}
    assert found - {None} == set(victim.weights())


def test_sizes_are_the_specs_and_a_part_is_oriented_out_by_in(victim):
    parts, tensors = victim.anatomy, weights(victim)
    assert (parts.vocabulary, parts.width, parts.heads, len(parts.blocks)) == (40, 12, 3, 2)
    assert tensors[parts.position].shape == (8, 12)
    assert parts.decoder.weight.of(tensors).shape == (40, 12)
    assert parts.tied == (parts.decoder.weight.name == parts.token_embedding)
    for block in parts.blocks:
        assert block.query.weight.of(tensors).shape == (12, 12)
        assert block.first.weight.of(tensors).shape == (20, 12)
        assert block.second.weight.of(tensors).shape == (12, 20)


def test_a_part_is_written_through_to_the_model(victim, tokens):
    parts, tensors = victim.anatomy, weights(victim)
    before = victim(tokens)
    parts.blocks[0].value.weight.of(tensors)[1, 2] += 1
    assert not torch.allclose(victim(tokens), before)


def test_an_updates_parts_are_read_as_the_weights_are(victim, tokens):
    parts, named = victim.anatomy, victim.weights()
    grads = torch.autograd.grad(victim(tokens).square().mean(), list(named.values()))
    update = dict(zip(named, grads, strict=True))
    for block in parts.blocks:
        for layer in (block.query, block.first, block.second):
            whole = update[layer.weight.name]
            part = layer.weight.of(update)
            assert part.shape == layer.weight.of(named).shape
            assert part.untyped_storage().data_ptr() == whole.untyped_storage().data_ptr()


def test_fixed_positions_are_named_and_not_trained(name):
    for position in ("learned", "sinusoidal"):
        spec = TextSpec(architecture=name, mask_token=3, position=position, **SMALL)
        victim = build(spec, generator(0))
        parts = victim.anatomy
        assert parts.position_trained == (position == "learned")
        assert parts.position_trained == (parts.position in victim.weights())
        assert parts.position in weights(victim)


def test_a_victim_that_reads_no_text_is_not_applicable(make_victim):
    with pytest.raises(NotApplicable, match="a Victim reads no text"):
        TextVictim.of(make_victim())
