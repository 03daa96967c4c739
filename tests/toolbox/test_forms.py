"""The closed forms against the truth, on victims drawn small."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmark.contract import ImageBatch
from benchmark.federation import fedsgd
from benchmark.toolbox.closedform import (
    patches_from_embeddings,
    patches_from_positions,
    patches_from_span,
    tokens_from_attention,
)
from benchmark.victims import to_patches, weights

START = {"position_std": 1.0, "class_token_std": 1.0}
EXACT = {torch.float32: 1e-4, torch.float64: 1e-6}  # largest error, in normalised pixels

drawn = given(
    side=st.integers(1, 3),
    patch=st.integers(2, 4),
    channels=st.sampled_from([1, 3]),
    seed=st.integers(0, 99),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)


@pytest.fixture(scope="module")
def leak(make_victim):
    """Make a small victim and its update, and return both with the true patches and labels."""

    def make(architecture, *, side, patch, channels, seed, dtype, shift=0.0, **settings):
        victim = make_victim(
            architecture,
            seed=seed,
            channels=channels,
            size=side * patch,
            patch=patch,
            width=128,
            depth=2,
            initialisation=START,
            **settings,
        ).to(dtype)
        draws = torch.Generator().manual_seed(seed)
        if shift:
            norm = victim.network.blocks[0].norm1
            norm.bias.data = shift * torch.randn(128, generator=draws).to(dtype)
            norm.weight.data = 0.5 + torch.rand(128, generator=draws).to(dtype)
        images = torch.rand(1, channels, side * patch, side * patch, generator=draws)
        update = fedsgd(victim, ImageBatch(images, torch.tensor([seed % 10])))
        truth = to_patches((images - 0.4) / 0.25, patch)[0].double()
        return victim.anatomy, weights(victim), update, truth

    return make


def close(found, truth, dtype):
    assert found.dtype == torch.float64
    assert found.shape == truth.shape
    assert (found - truth).abs().max() < EXACT[dtype]


def span(parts, known, update, draws):
    block, norm = parts.blocks[0], parts.blocks[0].attention_norm
    return patches_from_span(
        torch.cat([part.of(update) for part in (block.query, block.key, block.value)]),
        update["patch_embed.weight"],
        tokens=parts.tokens,
        weight=known["patch_embed.weight"],
        offsets=known["patch_embed.bias"] + known["pos_embed"][0, 1:],
        norm=norm and (known[f"{norm}.weight"], known[f"{norm}.bias"]),
        generator=draws,
    )


@drawn
@pytest.mark.parametrize("architecture", ["april_a", "april_b"])
def test_position_gradient_gives_the_patches(leak, architecture, dtype, **size):
    _, _, update, truth = leak(architecture, dtype=dtype, **size)
    found = patches_from_positions(update["pos_embed"][0, 1:], update["patch_embed.weight"])
    close(found, truth, dtype)


@drawn
def test_attention_and_position_gradients_give_the_tokens_and_so_the_patches(leak, dtype, **size):
    parts, known, update, truth = leak("april_a", dtype=dtype, **size)
    block = parts.blocks[0]
    qkv = (block.query, block.key, block.value)
    tokens = tokens_from_attention(
        update["pos_embed"][0], [p.of(known) for p in qkv], [p.of(update) for p in qkv]
    )
    torch.testing.assert_close(
        tokens[0], (known["cls_token"][0, 0] + known["pos_embed"][0, 0]).double(), **_slack(dtype)
    )
    embeddings = (tokens - known["pos_embed"][0])[1:]
    weight, bias = known["patch_embed.weight"], known["patch_embed.bias"]
    close(patches_from_embeddings(embeddings, weight, bias), truth, dtype)


@drawn
@pytest.mark.parametrize("architecture", ["april_a", "april_b"])
@pytest.mark.parametrize("position", ["learned", "sincos_1d"])
def test_span_of_the_attention_gives_the_patches(leak, architecture, position, dtype, **size):
    made = leak(architecture, position=position, dtype=dtype, **size)
    close(span(*made[:3], torch.Generator().manual_seed(0)), made[3], dtype)


@drawn
def test_span_sees_through_a_norm_with_a_shift_and_a_scale(leak, dtype, **size):
    made = leak("april_b", shift=0.5, dtype=dtype, **size)
    close(span(*made[:3], torch.Generator().manual_seed(0)), made[3], dtype)


def test_more_patches_than_width_are_not_determined(leak, make_victim):
    victim = make_victim(patch=2, width=8, initialisation=START)  # 196 patches
    images = torch.rand(1, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    update = fedsgd(victim, ImageBatch(images, torch.tensor([0])))
    found = patches_from_positions(update["pos_embed"][0, 1:], update["patch_embed.weight"])
    truth = to_patches((images - 0.4) / 0.25, 2)[0]
    assert found.isfinite().all()
    assert (found - truth).abs().max() > 0.5


def test_zero_gradients_give_no_patches_but_finite_ones(draw):
    for norm in (None, (torch.ones(32), torch.ones(32))):
        found = patches_from_span(
            torch.zeros(96, 32),
            torch.zeros(32, 9),
            tokens=5,
            weight=torch.randn(32, 9, generator=draw),
            offsets=torch.randn(4, 32, generator=draw),
            norm=norm,
            generator=draw,
        )
        assert found.isfinite().all()
    assert not patches_from_positions(torch.zeros(4, 32), torch.zeros(32, 9)).any()


def _slack(dtype):
    return {"rtol": 0, "atol": EXACT[dtype]}
