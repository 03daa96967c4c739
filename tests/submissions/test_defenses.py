import pytest
import torch

from benchmark.api import Update
from benchmark.federation import DefendedRound
from benchmark.registry import Registry

REGISTRY = Registry()


@pytest.fixture
def defended(quick):
    def make(label, protocol="quick_digits_b"):
        (submission,) = REGISTRY.find("defense", label)[:1]
        return DefendedRound(quick(protocol).round, submission.build(), submission.label)

    return make


def built(label):
    (submission,) = REGISTRY.find("defense", label)[:1]
    return submission.build()


@pytest.mark.parametrize("law", ["gaussian_noise", "laplacian_noise"])
@pytest.mark.parametrize("scale", [0.001, 0.1])
def test_noise_has_the_scale_times_the_gradient_s_norm(defended, law, scale):
    made = defended(f"{law},scale={scale}")
    noised, clean = made.update(0), made.plain.update(0)
    noise = Update({name: noised[name] - clean[name] for name in clean})
    assert noise.norm() == pytest.approx(scale * clean.norm(), rel=0.01)


@pytest.mark.parametrize(("law", "kurtosis"), [("gaussian_noise", 3), ("laplacian_noise", 6)])
def test_noise_follows_its_law(draw, secret, law, kurtosis):
    zero_mean = Update({"a": torch.randn(2000, 1000, generator=draw)})
    noised = built(f"{law},scale=1.0").protect_update(zero_mean, None, secret)
    noise = (noised["a"] - zero_mean["a"]).double()
    found = (noise**4).mean() / (noise**2).mean() ** 2
    assert found.item() == pytest.approx(kurtosis, abs=0.2)


def test_withheld_position_is_all_that_is_missing(defended):
    made = defended("withhold_position")
    sent, whole = made.update(0), made.plain.update(0)
    assert set(whole) - set(sent) == {"pos_embed"}
    assert all(sent[name] is whole[name] for name in sent)
    assert made.server_model is made.plain.victim  # the server sent the positions itself


@pytest.mark.parametrize("encoding", ["sincos_1d", "sincos_2d"])
def test_fixed_position_changes_the_positions_alone(defended, encoding):
    made = defended(f"fixed_position,encoding={encoding}")
    assert set(made.plain.update(0)) - set(made.update(0)) == {"pos_embed"}
    assert not made.model.anatomy.position_trained
    assert made.plain.victim.anatomy.position_trained
    assert made.model.spec.position == encoding
    for name, weight in made.model.weights().items():
        assert torch.equal(weight, made.plain.victim.weights()[name])


@pytest.mark.parametrize(
    ("share", "size", "patch", "width"),
    [
        (0.5, 28, 7, 4),  # 16 patches: below 8 that 4 heads divide
        (0.5, 28, 4, 24),  # 49 patches: below 24.5
        (0.5, 32, 4, 28),  # 64 patches: below 32, not 32 itself
        (1.0, 32, 4, 60),
        (0.5, 14, 7, 4),  # 4 patches: a channel a head is kept
    ],
)
def test_narrow_width_is_the_largest_below_the_share_that_heads_divide(
    make_victim, draw, share, size, patch, width
):
    victim = make_victim(size=size, patch=patch, depth=1)
    narrow = built(f"narrow_width,share={share}").harden(victim, draw)
    assert narrow.anatomy.width == width
    assert narrow.anatomy.patches == victim.anatomy.patches
    assert victim.anatomy.width == 384


def test_narrow_width_fits_the_heads_of_timm(make_victim, draw):
    small = {"channels": 3, "size": 32, "patch": 2, "depth": 1}
    victim = make_victim("timm/deit_tiny_patch16_224", **small)  # 256 patches, 3 heads
    assert built("narrow_width").harden(victim, draw).anatomy.width == 126


@pytest.mark.parametrize("submission", REGISTRY.all("defense"), ids=lambda s: s.label)
def test_adversary_knows_the_parameters(submission):
    said = submission.build().describe()
    assert dict(submission.arguments).items() <= said.items()


@pytest.mark.parametrize(("kind", "bits"), [("float16", 11), ("bfloat16", 8)])
def test_half_precision_keeps_as_many_bits_as_its_format(defended, kind, bits):
    made = defended(f"half_precision,format={kind}")
    sent, whole = made.update(0), made.plain.update(0)
    for name, tensor in whole.items():
        large = tensor.abs() > 1e-3 * tensor.abs().max()
        off = ((sent[name] - tensor) / tensor)[large].abs()
        assert off.max() <= 2.0**-bits  # half a unit of the last bit kept
        assert off.max() > 2.0 ** -(bits + 2)


def test_half_precision_loses_no_small_gradient_to_zero_for_want_of_scale():
    small = Update({"a": torch.tensor([1e-9, 3e-7])})  # float16's least number is 6e-8
    sent = built("half_precision,format=float16").protect_update(small, None, None)
    assert torch.allclose(sent["a"], small["a"], rtol=1e-2)
