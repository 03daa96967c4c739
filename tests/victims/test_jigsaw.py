import pytest
import torch
from torch import nn

from benchmark.contract import ImageBatch
from benchmark.errors import NotApplicable
from benchmark.federation import fedsgd
from benchmark.running.exchange import load_model, save_model
from benchmark.victims import Jigsaw

SMALL = {"size": 16, "patch": 4, "width": 32, "depth": 1}
VICTIMS = {
    "april": {"architecture": "april_b", **SMALL},
    "timm": {"architecture": "timm/vit_tiny_patch16_224", "channels": 3, **SMALL} | {"width": 48},
    "face": {"architecture": "face_transformer", **SMALL} | {"patch": 6},
}
RANDOM = {"layers": "torch", "position_std": 1.0}


@pytest.fixture(params=VICTIMS.values(), ids=VICTIMS)
def victim(request, make_victim):
    return make_victim(**request.param, initialisation=RANDOM)


@pytest.fixture
def batch(victim, draw):
    masked = torch.zeros(2, victim.anatomy.patches, dtype=torch.bool)
    masked[0, :5] = masked[1, 3:9] = True
    images = torch.rand(2, victim.spec.channels, 16, 16, generator=draw)
    return ImageBatch(images, torch.tensor([3, 1]), masked)


def test_masked_patches_stand_at_the_shared_position_and_the_class_token_at_its_own(
    victim, batch, draw
):
    made = victim.with_jigsaw(Jigsaw(unknown=True), draw)
    for row in range(2):
        alone = made.with_jigsaw(Jigsaw(), draw)  # a plain copy, whose table says the same
        table = alone.network.pos_embed.data
        places = batch.masked[row].nonzero()[:, 0] + made.anatomy.position_offset
        table[0, places] = made.network.unknown_position.data[0, 0]
        wanted = alone(batch.images[row : row + 1])
        torch.testing.assert_close(made(batch.images, batch.masked)[row : row + 1], wanted)


def test_without_a_mask_the_victim_answers_as_it_did(victim, batch, draw):
    made = victim.with_jigsaw(Jigsaw(unknown=True, index=True, localisation="mlp"), draw)
    torch.testing.assert_close(made(batch.images), victim(batch.images))
    assert not {"unknown_position", "index_embed"} & set(victim.weights())  # left as it is


def test_positions_that_every_image_masks_have_no_gradient_and_the_shared_one_has_theirs(
    victim, batch, draw
):
    made, offset = victim.with_jigsaw(Jigsaw(unknown=True), draw), victim.anatomy.position_offset
    update = fedsgd(made, batch)
    moved = update["pos_embed"][0, offset:].any(1)
    assert torch.equal(~moved, batch.masked.all(0))
    assert update["unknown_position"].any()
    whole = fedsgd(made, ImageBatch(batch.images, batch.labels))
    assert not whole["unknown_position"].any()
    assert whole["pos_embed"][0, offset:].any(1).all()


@pytest.mark.parametrize("kind", ["pca", "linear", "mlp"])
def test_jigsaw_crosses_into_a_sandbox_bit_by_bit(make_victim, draw, tmp_path, kind):
    jigsaw = Jigsaw(unknown=True, index=True, localisation=kind)
    model = make_victim(**SMALL, initialisation=RANDOM).with_jigsaw(jigsaw, draw)
    save_model(model, tmp_path / "model")
    there = load_model(tmp_path / "model", torch.device("cpu"))
    assert there.spec == model.spec
    assert list(there.weights()) == list(model.weights())
    assert torch.equal(there.localisation(), model.localisation())


@pytest.fixture
def placed(make_victim, draw):
    """Return a victim whose positions are (row, column) turned, with a localisation by kind."""

    def make(kind):
        made = make_victim(**SMALL, initialisation=RANDOM).with_jigsaw(
            Jigsaw(unknown=True, localisation=kind, weight=1.0), draw
        )
        rows, columns = torch.meshgrid(torch.arange(1.0, 5), torch.arange(1.0, 5), indexing="ij")
        places = torch.stack([rows.flatten(), 1.5 * columns.flatten()], dim=1)
        turned = torch.linalg.qr(torch.randn(32, 2, generator=draw))[0]
        made.network.pos_embed.data[0, 1:] = places @ turned.T
        return made, turned

    return make


def test_localisation_is_the_mean_l1_distance_of_the_patches_that_are_not_masked(placed):
    made, turned = placed("linear")
    (layer,) = made.network.localiser
    layer.weight.data, layer.bias.data = turned.T.clone(), torch.zeros(2)
    places = torch.arange(1.0, 5)
    assert made.localisation().item() == pytest.approx((0.5 * places).mean().item(), rel=1e-5)
    masked = torch.ones(1, 16, dtype=torch.bool)
    masked[0, 3] = False  # row 1, column 4, found at column 6
    assert made.localisation(masked).item() == pytest.approx(2.0, rel=1e-5)
    assert made.localisation(torch.ones_like(masked)).item() == 0


def test_localisation_by_pca_finds_the_plane_of_the_positions(placed):
    made, _ = placed("pca")
    assert made.localisation().item() == pytest.approx(1.25, rel=1e-4)  # 0.5 times a mean column


def test_localisation_moves_positions_and_mapping_towards_their_places(placed):
    made, _ = placed("mlp")
    before = made.localisation().item()
    weights = {n: w for n, w in made.weights().items() if n == "pos_embed" or "localiser" in n}
    gradients = torch.autograd.grad(made.localisation(), list(weights.values()))
    assert all(gradient.any() for gradient in gradients)
    for weight, gradient in zip(weights.values(), gradients, strict=True):
        weight.data -= 1e-4 * gradient
    assert made.localisation().item() < before


def test_localisation_by_an_mlp_has_three_layers(placed):
    layers = [each for each in placed("mlp")[0].network.localiser if isinstance(each, nn.Linear)]
    assert [layer.out_features for layer in layers] == [32, 32, 2]


def test_victim_without_patches_takes_no_jigsaw(make_victim, draw):
    with pytest.raises(NotApplicable):
        make_victim("cifar/resnet20", channels=3, size=32).with_jigsaw(Jigsaw(unknown=True), draw)
