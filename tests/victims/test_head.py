import pytest
import torch

from benchmark.victims import weights

SMALL = {"channels": 3, "size": 32, "classes": 7}
VICTIMS = {
    "april_b": ({"architecture": "april_b", "depth": 1, "classes": 7}, "head"),
    "deit": ({"architecture": "timm/deit_tiny_patch16_224", "depth": 1, **SMALL}, "head"),
    "distilled": (
        {"architecture": "timm/deit_tiny_distilled_patch16_224", "depth": 1, **SMALL},
        "head",
    ),
    "norm before the blocks": (
        {"architecture": "timm/vit_base_patch16_clip_224", "depth": 1, **SMALL},
        "head",
    ),
    "swin": (
        {"architecture": "timm/swin_tiny_patch4_window7_224", "width": 24, **SMALL},
        "head.fc",
    ),
    "resnet18": ({"architecture": "timm/resnet18", **SMALL}, "fc"),
    "cifar": ({"architecture": "cifar/resnet20", **SMALL}, "linear"),
}


@pytest.mark.parametrize(("spec", "named"), VICTIMS.values(), ids=VICTIMS)
def test_head_s_bias_moves_the_logits_alone(make_victim, draw, spec, named):
    victim = make_victim(**spec)
    images = torch.rand(1, victim.spec.channels, victim.spec.size, victim.spec.size, generator=draw)
    assert victim.head == named
    assert f"{named}.weight" in victim.weights()
    before = victim(images).detach()
    with torch.no_grad():
        weights(victim)[f"{named}.bias"] += torch.arange(7.0)
    share = 0.5 if "distilled" in spec["architecture"] else 1  # two heads, averaged
    torch.testing.assert_close(
        victim(images).detach(), before + share * torch.arange(7.0), rtol=1e-4, atol=1e-4
    )
