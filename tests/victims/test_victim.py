import pytest
import timm
import torch
from huggingface_hub import constants
from safetensors.torch import save_file

from benchmark.errors import DataUnavailable, NotApplicable, ProtocolError
from benchmark.seeds import generator
from benchmark.victims import build

SMALL = {"architecture": "timm/deit_tiny_patch16_224", "size": 32, "patch": 8, "depth": 1}
TRAINED = {"architecture": "timm/test_vit.r160_in1k", "size": 160, "channels": 3, "classes": 7}


def same(one, other):
    one, other = one.state_dict(), other.state_dict()
    assert list(one) == list(other)
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("spec", [{"architecture": "april_a"}, {"architecture": "april_b"}, SMALL])
def test_spec_and_seed_make_the_weights_and_another_seed_makes_others(make_victim, spec):
    torch.manual_seed(1)
    first = make_victim(**spec)
    torch.manual_seed(2)
    assert same(first, make_victim(**spec))
    assert not same(first, make_victim(**spec, seed=1))


def test_building_leaves_the_global_stream_alone(make_victim):
    state = torch.get_rng_state()
    make_victim(depth=1)
    assert torch.equal(state, torch.get_rng_state())


def test_victim_normalises_inside_itself_in_evaluation_mode(make_victim, draw):
    victim = make_victim(depth=1)
    images = torch.rand(2, 1, 28, 28, generator=draw)
    torch.testing.assert_close(victim(images), victim.network((images - 0.4) / 0.25))
    assert not victim.training
    assert {"mean", "std"}.isdisjoint(victim.state_dict())


@pytest.mark.parametrize("spec", [{"architecture": "april_b"}, SMALL])
def test_tokens_start_with_the_given_deviations(make_victim, spec):
    start = {"position_std": 1.0, "class_token_std": 3.0}
    network = make_victim(**spec, initialisation=start).network
    assert network.pos_embed.std().item() == pytest.approx(1, rel=0.05)
    assert network.cls_token.std().item() == pytest.approx(3, rel=0.2)
    assert make_victim(**spec).network.pos_embed.std() < 0.1


def test_weights_are_what_an_update_has_entries_for(make_victim):
    victim = make_victim(depth=1)
    assert set(victim.weights()) == {name for name, _ in victim.network.named_parameters()}
    victim.requires_grad_(False)  # what an attack may do changes no update
    assert set(victim.weights()) == {name for name, _ in victim.network.named_parameters()}


def test_victim_of_another_width_is_drawn_from_its_generator(make_victim):
    victim = make_victim(depth=1)
    narrow = victim.with_width(8, generator(0, "a"))
    assert narrow.network.head.in_features == 8
    assert narrow.spec == victim.spec.model_copy(update={"width": 8})
    assert same(narrow, victim.with_width(8, generator(0, "a")))
    assert not same(narrow, victim.with_width(8, generator(0, "b")))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"architecture": "april_c"},
            "no victim 'april_c'; known: april_a, april_b, face_transformer, cifar/NAME, timm/NAME",
        ),
        ({"architecture": "timm/vit_nothing"}, "timm has no model 'vit_nothing'"),
        ({"architecture": "timm/test_vit_relpos"}, "timm/test_vit_relpos is "),
        ({"architecture": "timm/vit_tiny_patch16_224", "size": 30}, "patches must tile 30 px"),
        ({"architecture": "timm/deit_tiny_patch16_224", "width": 64}, "divisible"),
        ({"architecture": "april_b", "patch": 5}, "5 px patches must tile 28 px"),
        ({"architecture": "april_b", "width": 30}, "4 heads 30"),
        ({"architecture": "april_b", "weights": "pretrained"}, "has no pretrained weights"),
    ],
)
def test_victim_that_cannot_be_is_refused_in_one_line(make_victim, spec, said):
    with pytest.raises(ProtocolError) as raised:
        make_victim(**spec)
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)


def trained(make_victim, mirror):
    """Return the victim of a spec that asks for trained weights, and of the same without."""
    spec = make_victim(**TRAINED).spec.model_copy(update={"weights": "pretrained"})
    return build(spec, generator(0, "victim"), mirror)


def test_pretrained_weights_come_from_the_mirror(make_victim, tmp_path):
    (tmp_path / "weights").mkdir()
    published = timm.create_model("test_vit", num_classes=1000).state_dict()
    save_file(published, tmp_path / "weights/test_vit.r160_in1k.safetensors")
    loaded = trained(make_victim, tmp_path).network.state_dict()
    assert loaded["head.weight"].shape[0] == 7
    for name in published.keys() - {"head.weight", "head.bias"}:
        assert torch.equal(loaded[name], published[name])


def test_pretrained_weights_that_are_nowhere_are_answered_with_the_command(
    make_victim, tmp_path, monkeypatch
):
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with pytest.raises(DataUnavailable) as raised:
        trained(make_victim, tmp_path)
    assert raised.value.tried[0] == str(tmp_path / "weights/test_vit.r160_in1k.safetensors")
    assert "timm.create_model('test_vit.r160_in1k', pretrained=True)" in raised.value.command
    assert "\n" not in str(raised.value)


def test_pretrained_victim_has_one_width(make_victim, tmp_path):
    victim = make_victim(depth=1)
    victim.spec = victim.spec.model_copy(update={"weights": "pretrained"})
    with pytest.raises(NotApplicable, match="trained weights have one width"):
        victim.with_width(8, generator(0))
