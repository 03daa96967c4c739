"""What every kind of victim must do: be made again from its tensors, be differentiated twice."""

import pytest
import torch
from torch.nn import functional

from benchmark.errors import NotApplicable, ProtocolError
from benchmark.running.exchange import load_model, save_model
from benchmark.seeds import generator
from benchmark.victims import build

SWIN = {"architecture": "timm/swin_tiny_patch4_window7_224", "width": 24, "size": 48}
FAMILIES = {
    "vit": {"architecture": "timm/vit_tiny_patch16_224", "depth": 1},
    "swin": SWIN,
    "resnet18": {"architecture": "timm/resnet18"},
    "resnet50": {"architecture": "timm/resnet50"},
    "cifar": {"architecture": "cifar/resnet20"},
}
NORMED = ("resnet18", "resnet50", "cifar")  # by BatchNorm


@pytest.fixture(scope="module", params=FAMILIES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def victim(make_victim, name):
    """A victim whose running statistics are not what they start from; no test changes it."""
    victim = make_victim(**{"channels": 3, "size": 32, **FAMILIES[name]})
    draw = torch.Generator().manual_seed(1)
    for key, tensor in victim.network.state_dict().items():
        if key.endswith("running_mean"):
            tensor.normal_(std=0.1, generator=draw)
        elif key.endswith("running_var"):
            tensor.uniform_(0.5, 2, generator=draw)
        elif key.endswith("num_batches_tracked"):
            tensor.fill_(3)
    return victim


@pytest.fixture
def images(victim, draw):
    return torch.rand(2, 3, victim.spec.size, victim.spec.size, generator=draw)


def test_gradient_of_the_gradient_s_norm_is_finite_and_not_zero(victim, images, name):
    images.requires_grad_()
    loss = functional.cross_entropy(victim(images), torch.tensor([1, 2]))
    gradients = torch.autograd.grad(loss, list(victim.weights().values()), create_graph=True)
    for parameter, gradient in zip(victim.weights(), gradients, strict=True):
        silent = name == "vit" and parameter.endswith("k.bias")  # softmax ignores it
        assert gradient.any() or silent, f"no gradient reaches {parameter}"
    (second,) = torch.autograd.grad(sum(g.square().sum() for g in gradients), images)
    assert second.isfinite().all()
    assert second.flatten(1).any(dim=1).all()


def test_no_attention_is_fused_where_its_kernel_might_be_differentiated_once(victim, name):
    fused = [module.fused_attn for module in victim.modules() if hasattr(module, "fused_attn")]
    assert bool(fused) == (name in ("vit", "swin"))
    assert not any(fused)


def test_victim_is_made_again_from_its_spec_and_tensors(victim, images, name):
    there = build(victim.spec, generator(9))
    fresh = there(images)
    there.network.load_state_dict(victim.network.state_dict())
    assert torch.equal(there(images), victim(images))
    assert not torch.equal(fresh, victim(images))
    statistics = [key for key in victim.network.state_dict() if key.endswith("running_var")]
    assert bool(statistics) == (name in NORMED)


def test_victim_crosses_into_the_sandbox(victim, images, tmp_path):
    save_model(victim, tmp_path / "model")
    there = load_model(tmp_path / "model", torch.device("cpu"))
    assert torch.equal(there(images), victim(images))
    assert there.spec == victim.spec


def test_answer_to_an_image_does_not_depend_on_its_batch(victim, images):
    torch.testing.assert_close(victim(images)[:1], victim(images[:1]), rtol=1e-4, atol=1e-4)


def test_parts_of_all_but_a_vit_are_not_known(victim, name):
    if name == "vit":
        assert victim.anatomy.patches == 4
    else:
        with pytest.raises(NotApplicable, match="is no vision transformer whose parts are known"):
            _ = victim.anatomy


@pytest.mark.parametrize(("layers", "start"), [("torch", 1), ("timm", 0)])
def test_last_norm_of_a_resnet_s_branch_starts_as_asked(make_victim, layers, start):
    start_at = {"layers": layers}
    victim = make_victim("timm/resnet18", channels=3, size=32, initialisation=start_at)
    assert (victim.weights()["layer1.0.bn2.weight"] == start).all()


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"architecture": "timm/resnet18", "patch": 4}, "timm/resnet18 takes no patch; got patch"),
        ({"architecture": "timm/resnet18", "width": 64}, "takes no width; got width 64"),
        ({"architecture": "cifar/resnet20", "depth": 2}, "cifar/resnet20 takes no depth; got"),
        ({**SWIN, "depth": 2}, "swin_tiny_patch4_window7_224 takes no depth; got depth 2"),
        ({**SWIN, "size": 30}, "4 px patches must tile 30 px"),
        ({"architecture": "timm/convnext_tiny"}, "is no ViT, DeiT, Swin or ResNet"),
        ({"architecture": "cifar/resnet18"}, "known: cifar/resnet20, cifar/resnet32, cifar/re"),
        ({**SWIN, "position": "sincos_1d"}, "has no positions to fix as sincos_1d"),
    ],
)
def test_setting_a_family_lacks_is_refused_in_one_line(make_victim, spec, said):
    with pytest.raises(ProtocolError) as raised:
        make_victim(**spec)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("architecture", ["timm/resnet18", "cifar/resnet20"])
def test_victim_without_positions_or_width_cannot_be_given_others(make_victim, architecture):
    victim = make_victim(architecture, channels=3, size=32)
    with pytest.raises(ProtocolError, match="has no positions to fix as sincos_2d"):
        victim.with_fixed_positions("sincos_2d")
    with pytest.raises(ProtocolError, match="takes no width; got width 8"):
        victim.with_width(8, generator(0))
