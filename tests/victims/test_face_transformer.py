"""The Face Transformer: patches that overlap, read by a tracer, differentiated twice."""

import pytest
import torch
from torch.nn import functional

from benchmark.errors import ProtocolError
from benchmark.running.exchange import load_model, save_model
from benchmark.toolbox.matching.trace import Product, Tracer
from benchmark.victims import weights
from benchmark.victims.face_transformer import FaceTransformer

SMALL = {"channels": 3, "size": 16, "patch": 6, "width": 24, "depth": 2, "heads": 3}


@pytest.fixture
def victim(make_victim):
    return make_victim("face_transformer", **SMALL)


@pytest.fixture
def images(draw):
    return torch.rand(2, 3, 16, 16, generator=draw)


def test_published_setting_has_196_overlapping_patches_and_63_million_parameters():
    with torch.device("meta"):
        network = FaceTransformer(channels=3, size=112, classes=10)
    assert network.pos_embed.shape == (1, 197, 512)
    assert network.patch_embed.weight.shape == (512, 3 * 12 * 12)
    assert (len(network.blocks), network.blocks[0].attn.num_heads) == (20, 8)
    block = 3 * 512**2 + 513 * 512 + 2 * 1024 + 513 * 2048 + 2049 * 512
    ends = 433 * 512 + 198 * 512 + 1024 + 513 * 10
    assert sum(p.numel() for p in network.parameters()) == 20 * block + ends


def test_token_reads_its_patch_and_the_overlap_and_nothing_else(victim, images):
    images.requires_grad_()
    token = victim.network.unfold(images)[0, :, 5]  # second row, second column: from pixel 2 to 7
    (read,) = torch.autograd.grad(token.sum(), images)
    seen = torch.zeros(16, 16)
    seen[2:8, 2:8] = 1
    assert torch.equal(read[0], seen.expand(3, -1, -1))


def test_every_pixel_is_read_and_those_of_an_overlap_more_than_once(victim, images):
    images.requires_grad_()
    (read,) = torch.autograd.grad(victim.network.unfold(images).sum(), images)
    assert set(read.unique().tolist()) == {1, 2, 4}


def test_positions_and_class_token_start_from_a_unit_normal(victim):
    assert victim.network.pos_embed.std().item() == pytest.approx(1, rel=0.2)
    assert victim.network.cls_token.abs().max() > 0.1


def test_gradient_of_the_gradient_s_norm_is_finite_and_not_zero(victim, images):
    images.requires_grad_()
    loss = functional.cross_entropy(victim(images), torch.tensor([1, 2]))
    gradients = torch.autograd.grad(loss, list(victim.weights().values()), create_graph=True)
    assert all(gradient.any() for gradient in gradients)
    (second,) = torch.autograd.grad(sum(g.square().sum() for g in gradients), images)
    assert second.isfinite().all()
    assert second.flatten(1).any(dim=1).all()


def test_tracer_takes_a_whole_stack_apart_as_autograd_would(victim, draw):
    images = torch.rand(3, 2, 3, 16, 16, generator=draw).requires_grad_()
    labels = torch.tensor([[1, 2], [3, 3], [0, 9]])
    tracer = Tracer(victim.network)
    assert tracer.together

    def losses(logits, which):
        rows = functional.cross_entropy(logits, labels[which].flatten(), reduction="none")
        return rows.view(-1, 2).mean(1)

    found = tracer.trace(images, losses).gradients
    assert set(found) == set(victim.weights())
    assert isinstance(found["patch_embed.weight"], Product)
    for trial in range(3):
        loss = functional.cross_entropy(victim.network(images[trial]), labels[trial])
        wanted = torch.autograd.grad(loss, list(victim.weights().values()))
        for (name, one), gradient in zip(victim.weights().items(), wanted, strict=True):
            formed = found[name].form() if isinstance(found[name], Product) else found[name]
            torch.testing.assert_close(
                formed[trial].view_as(one), gradient, rtol=1e-3, atol=1e-5, msg=name
            )


def test_anatomy_names_its_parts(victim, images):
    parts, known = victim.anatomy, weights(victim)
    assert (parts.patch, parts.overlap, parts.patches, parts.tokens) == (4, 2, 16, 17)
    side = parts.patch + parts.overlap
    assert known[f"{parts.patch_embedding}.weight"].shape == (parts.width, 3 * side**2)
    assert known[parts.position].shape == (1, parts.tokens, parts.width)
    assert (parts.heads, len(parts.blocks), victim.head) == (3, 2, parts.head)
    assert known[f"{parts.head}.weight"].shape == (10, parts.width)
    before = victim(images).detach()
    for norm in (parts.final_norm, parts.blocks[0].attention_norm, parts.blocks[1].mlp_norm):
        known[f"{norm}.bias"] += 1
        after = victim(images).detach()
        assert not torch.allclose(after, before)
        before = after


def test_patches_that_tile_do_not_overlap(make_victim):
    assert make_victim(depth=1).anatomy.overlap == 0


def test_positions_can_be_fixed(victim, images):
    fixed = victim.with_fixed_positions("sincos_1d")
    assert "pos_embed" not in fixed.weights()
    assert not torch.allclose(fixed(images), victim(images))


def test_victim_crosses_into_the_sandbox(victim, images, tmp_path):
    save_model(victim, tmp_path / "model")
    there = load_model(tmp_path / "model", torch.device("cpu"))
    assert torch.equal(there(images), victim(images))
    assert there.spec == victim.spec


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"patch": 4}, "patches of 4 px slide by two thirds; wanted a multiple of 3"),
        ({"size": 18}, "6 px patches at every 4 px must fit 18 px"),
        ({"heads": 5}, "5 heads 24"),
        ({"weights": "pretrained"}, "face_transformer has no pretrained weights; wanted random"),
        ({"architecture": "timm/vit_tiny_patch16_224"}, "takes no heads; got heads 3"),
        ({"architecture": "cifar/resnet20", "depth": None}, "takes no heads; got heads 3"),
    ],
)
def test_setting_that_does_not_fit_is_refused_in_one_line(make_victim, change, said):
    with pytest.raises(ProtocolError) as raised:
        make_victim(**{"architecture": "face_transformer", **SMALL, **change})
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
