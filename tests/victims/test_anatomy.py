import pytest
import torch
from torch import nn

from benchmark.errors import NotApplicable
from benchmark.victims import ImageVictim, TextSpec, build, weights

SMALL = {"channels": 3, "size": 32, "patch": 8, "depth": 2}
VICTIMS = {
    "april_a": {"architecture": "april_a", "depth": 2},
    "april_b": {"architecture": "april_b", "depth": 2},
    "vit": {"architecture": "timm/test_vit", **SMALL},
    "deit": {"architecture": "timm/deit_tiny_patch16_224", **SMALL},
    "distilled": {"architecture": "timm/deit_tiny_distilled_patch16_224", **SMALL},
    "no prefix": {"architecture": "timm/vit_base_patch16_gap_224", "width": 64, **SMALL},
    "positions of patches alone": {
        "architecture": "timm/vit_small_patch14_reg4_dinov2",
        **SMALL,
    },
}
PREFIX = {"distilled": 2, "no prefix": 0, "positions of patches alone": 5}


@pytest.fixture(params=VICTIMS)
def name(request):
    return request.param


@pytest.fixture
def victim(make_victim, name):
    start = {"position_std": 0.5, "class_token_std": 0.5}
    return make_victim(**VICTIMS[name], initialisation=start)


@pytest.fixture
def images(victim, draw):
    spec = victim.spec
    return torch.rand(2, spec.channels, spec.size, spec.size, generator=draw)


def into(victim, module, images):
    """Return what a forward pass hands to a module, and what the module answers."""
    kept = []
    with module.register_forward_hook(lambda _, given, answer: kept.append((given[0], answer))):
        logits = victim(images)
    return *(tensor.detach() for tensor in kept[0]), logits.detach()


def embeddings(victim, images):
    return into(victim, victim.network.blocks[0], images)[0]


def changed_tokens(victim, images, name, index=...):
    """Return the tokens that enter the first block otherwise once a weight is moved."""
    before = embeddings(victim, images)
    weights(victim)[name][index] += 1
    moved = (embeddings(victim, images) - before).abs().amax((0, 2)) > 1e-3
    return moved.nonzero().flatten().tolist()


def test_counts_and_shapes_fit_the_model(victim, images, name):
    parts, known = victim.anatomy, weights(victim)
    pixels = parts.channels * parts.patch**2
    assert parts.prefix_tokens == PREFIX.get(name, 1)
    assert parts.patches == 16
    assert embeddings(victim, images).shape[1:] == (parts.tokens, parts.width)
    assert known[f"{parts.patch_embedding}.weight"].flatten(1).shape == (parts.width, pixels)
    assert known[parts.position].shape == (1, parts.position_offset + 16, parts.width)
    assert sum(known[prefix].shape[1] for prefix in parts.prefix) == parts.prefix_tokens
    assert known[f"{parts.head}.weight"].shape == (10, parts.width)
    assert len(parts.blocks) == 2
    for block in parts.blocks:
        for part in (block.query, block.key, block.value):
            assert part.of(known).shape == (parts.width, parts.width)
        first, second = (known[f"{layer}.weight"] for layer in block.mlp)
        assert first.shape == second.T.shape
        assert first.shape[1] == parts.width < first.shape[0]
        assert known[f"{block.mlp_norm}.weight"].shape == (parts.width,)


def test_each_position_moves_its_own_patch_alone(victim, images):
    parts = victim.anatomy
    assert parts.position_trained
    for patch in (0, 5, 15):
        row = (0, parts.position_offset + patch)
        assert changed_tokens(victim, images, parts.position, row) == [parts.prefix_tokens + patch]


def test_patch_embedding_moves_the_patches_and_prefixes_the_rest(victim, images):
    parts = victim.anatomy
    first = parts.prefix_tokens
    bias = f"{parts.patch_embedding}.bias"
    assert changed_tokens(victim, images, bias) == list(range(first, parts.tokens))
    moved = [token for name in parts.prefix for token in changed_tokens(victim, images, name)]
    assert sorted(moved) == list(range(first))


def test_query_key_and_value_make_the_block_s_attention(victim, images):
    parts = victim.anatomy
    for block, named in zip(victim.network.blocks, parts.blocks, strict=True):
        given, answer, _ = into(victim, block.attn, images)
        heads = (len(given), parts.tokens, parts.heads, parts.width // parts.heads)
        bias = block.attn.qkv.bias
        biases = {named.query.name: torch.zeros(3 * parts.width) if bias is None else bias}
        q, k, v = (
            (given @ part.of(weights(victim)).T + part.of(biases)).view(heads).transpose(1, 2)
            for part in (named.query, named.key, named.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        projection = named.attention_projection
        weight, bias = (weights(victim)[f"{projection}.{which}"] for which in ("weight", "bias"))
        torch.testing.assert_close(mixed @ weight.T + bias, answer, rtol=1e-4, atol=1e-5)


def test_norms_stand_before_what_they_are_named_for(victim, images):
    block, named = victim.network.blocks[0], victim.anatomy.blocks[0]
    if named.attention_norm is None:
        assert torch.equal(into(victim, block.attn, images)[0], embeddings(victim, images))
    for norm, module in ((named.attention_norm, block.attn), (named.mlp_norm, block.mlp)):
        if norm is not None:
            before = into(victim, module, images)[0]
            weights(victim)[f"{norm}.bias"] += 1
            after = into(victim, module, images)[0]
            weights(victim)[f"{norm}.bias"] -= 1
            torch.testing.assert_close(after, before + 1, rtol=1e-4, atol=1e-4)


def test_block_says_whether_it_keeps_the_attention_s_input(victim, images):
    block, named = victim.network.blocks[0], victim.anatomy.blocks[0]
    known = weights(victim)
    for layer in (named.attention_projection, named.mlp[1]):
        known[f"{layer}.weight"].zero_()
        known[f"{layer}.bias"].zero_()
    given, answer, _ = into(victim, block, images)
    assert torch.equal(given, answer) == named.residual


def test_final_norm_and_head_end_the_model(victim, images, name):
    parts, known = victim.anatomy, weights(victim)
    before = victim(images).detach()
    known[f"{parts.head}.bias"] += 1
    share = 0.5 if name == "distilled" else 1  # two heads, averaged
    torch.testing.assert_close(victim(images).detach(), before + share, rtol=1e-4, atol=1e-4)
    if parts.final_norm is not None:
        before = victim(images).detach()
        known[f"{parts.final_norm}.weight"].zero_()
        known[f"{parts.final_norm}.bias"].zero_()
        flat = victim(images).detach()
        torch.testing.assert_close(flat[0], flat[1])
        assert not torch.allclose(flat, before)
    assert (parts.final_norm is None) == name.startswith("april")


def test_fixed_positions_are_known_and_not_trained(make_victim, name):
    victim = make_victim(**VICTIMS[name], position="sincos_1d")
    parts = victim.anatomy
    assert not parts.position_trained
    assert parts.position in weights(victim)
    assert parts.position not in victim.weights()


def test_an_image_s_parts_are_not_asked_of_a_victim_of_text():
    spec = TextSpec(architecture="transformer3", vocabulary=9, length=4)
    with pytest.raises(NotApplicable, match="the parts of a LanguageVictim are not known"):
        ImageVictim.of(build(spec, torch.Generator()))


def test_parts_of_a_vit_with_a_norm_before_its_blocks_are_not_known(make_victim):
    small = {"channels": 3, "size": 32, "depth": 1}
    victim = make_victim("timm/vit_base_patch16_clip_224", **small)
    with pytest.raises(NotApplicable, match="vit_base_patch16_clip_224"):
        _ = victim.anatomy
