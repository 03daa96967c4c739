import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmark.victims.positions import sincos_1d, sincos_2d, vaswani

VICTIMS = {
    "april": {"architecture": "april_b", "depth": 1},
    "distilled": {
        "architecture": "timm/deit_tiny_distilled_patch16_224",
        "channels": 3,
        "size": 32,
        "patch": 8,
        "depth": 1,
    },
}


@pytest.mark.parametrize(("side", "width"), [(4, 384), (7, 768), (8, 384), (14, 768)])
def test_rows_of_the_encoding_in_one_dimension_are_independent(side, width):
    encoding = sincos_1d(side, width)
    assert encoding.shape == (side**2, width)
    assert torch.linalg.matrix_rank(encoding) == side**2  # to float32's precision


def test_encoding_of_vaswani_is_theirs_and_its_rows_depend_in_float32():
    encoding = vaswani(7, 768)
    wave = torch.tensor([3 * 10_000 ** (-2 * i / 768) for i in (0, 5, 383)])
    assert torch.allclose(encoding[3, [0, 5, 383]], wave.sin())
    assert torch.allclose(encoding[3, [384, 389, 767]], wave.cos())
    assert torch.linalg.matrix_rank(encoding) < 49


@given(st.integers(1, 14), st.integers(24, 60))
def test_encoding_in_two_dimensions_has_the_rank_of_rows_plus_columns(side, quarter):
    encoding = sincos_2d(side, 4 * quarter)
    assert encoding.shape == (side**2, 4 * quarter)
    assert torch.linalg.matrix_rank(encoding.double(), rtol=1e-5) <= 2 * side - 1
    assert torch.unique(encoding, dim=0).shape == encoding.shape  # every patch its own


def test_encoding_of_odd_width_ends_in_zero():
    encoding = sincos_1d(3, 7)
    assert encoding.shape == (9, 7)
    assert not encoding[:, 6].any()
    assert encoding[:, :6].any()


@pytest.mark.parametrize("encoding", ["sincos_1d", "sincos_2d", "vaswani"])
@pytest.mark.parametrize("spec", VICTIMS.values(), ids=VICTIMS)
def test_fixed_positions_are_neither_trained_nor_drawn(make_victim, spec, encoding):
    victim = make_victim(**spec)
    learned = victim.network.pos_embed.clone()
    fixed = victim.with_fixed_positions(encoding)
    assert set(victim.weights()) - set(fixed.weights()) == {"pos_embed"}
    assert torch.equal(victim.network.pos_embed, learned)  # the first is left as it is
    assert fixed.spec.position == encoding
    for name, weight in fixed.weights().items():
        assert torch.equal(weight, victim.weights()[name])
        assert weight is not victim.weights()[name]
    built = make_victim(**spec, position=encoding)
    assert torch.equal(built.network.pos_embed, fixed.network.pos_embed)


@pytest.mark.parametrize("spec", VICTIMS.values(), ids=VICTIMS)
def test_prefix_tokens_stand_at_zero_and_patches_at_the_encoding(make_victim, spec):
    positions = make_victim(**spec, position="sincos_1d").network.pos_embed[0]
    assert not positions[:-16].any()
    assert torch.equal(positions[-16:], sincos_1d(4, positions.shape[1]))
