"""Weights from a file of the mirror."""

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import save_file

from benchmark.errors import BenchmarkError, DataUnavailable, NotApplicable
from benchmark.running.exchange import load_model, save_model
from benchmark.seeds import generator
from benchmark.victims import ImageSettings, build

FILES = ("own/net.safetensors", "own/net.pth", "net.pt")


@pytest.fixture
def trained(make_victim):
    return make_victim(depth=1, width=16, seed=7)


@pytest.fixture
def mirror(tmp_path):
    (tmp_path / "own").mkdir()
    return tmp_path


def save(tensors, path):
    (save_file if path.suffix == ".safetensors" else torch.save)(tensors, path)


def loaded(victim, name, mirror, **changes):
    spec = victim.spec.model_copy(update={"checkpoint": name, **changes})
    return build(spec, generator(0, "victim"), mirror)


def same(one, other):
    one, other = one.network.state_dict(), other.network.state_dict()
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize("name", FILES)
def test_tensors_of_the_file_take_the_place_of_random_ones(trained, make_victim, mirror, name):
    save(trained.network.state_dict(), mirror / name)
    assert same(loaded(trained, name, mirror), trained)
    assert not same(make_victim(depth=1, width=16), trained)


def test_state_dict_may_lie_beside_other_content(trained, mirror):
    save({"state_dict": trained.network.state_dict(), "epoch": 3}, mirror / "net.pt")
    assert same(loaded(trained, "net.pt", mirror), trained)


def test_fixed_positions_are_not_those_of_the_file(trained, mirror):
    save(trained.network.state_dict(), mirror / "net.pt")
    there = loaded(trained, "net.pt", mirror, position="sincos_1d")
    assert torch.equal(
        there.network.pos_embed, trained.with_fixed_positions("sincos_1d").network.pos_embed
    )
    assert torch.equal(there.network.head.weight, trained.network.head.weight)


def test_victim_of_a_checkpoint_crosses_into_a_sandbox_that_has_no_file(trained, mirror):
    save(trained.network.state_dict(), mirror / "net.pt")
    victim = loaded(trained, "net.pt", mirror)
    (mirror / "net.pt").unlink()
    save_model(victim, mirror / "model")
    assert same(load_model(mirror / "model", torch.device("cpu")), trained)


def test_checkpoint_has_one_width(trained, mirror):
    save(trained.network.state_dict(), mirror / "net.pt")
    with pytest.raises(NotApplicable, match="have one width"):
        loaded(trained, "net.pt", mirror).with_width(8, generator(0))


@pytest.mark.parametrize("name", FILES)
def test_file_of_another_network_is_named_with_the_key(trained, mirror, name):
    path, tensors = mirror / name, trained.network.state_dict()
    for change, said in (
        ({"head.bias": torch.zeros(3)}, r"head.bias is \(3,\); the network wants \(10,\)"),
        ({"head.bias": None}, r"head.bias is no tensor; the network wants \(10,\)"),
        ({"more": torch.zeros(2, 2)}, r"more is \(2, 2\); the network wants no tensor"),
    ):
        changed = {key: t for key, t in (tensors | change).items() if t is not None}
        save(changed, path)
        with pytest.raises(BenchmarkError, match=f"^{path}: {said}$"):
            loaded(trained, name, mirror)


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_named_in_one_line(trained, mirror, name):
    (mirror / name).write_bytes(b"no tensors")
    with pytest.raises(BenchmarkError, match=f"^{mirror / name}: no file of weights: ") as raised:
        loaded(trained, name, mirror)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("content", [[1, 2], {"head.bias": "text"}, {"state_dict": None}])
def test_file_of_other_things_is_refused(trained, mirror, content):
    torch.save(content, mirror / "net.pt")
    with pytest.raises(BenchmarkError, match="no state dict; wanted tensors by name"):
        loaded(trained, "net.pt", mirror)


class Trap:
    def __reduce__(self):
        return print, ("a pickle ran",)


def test_pickled_objects_are_not_run(trained, mirror, capsys):
    torch.save({"head.bias": Trap()}, mirror / "net.pt")
    with pytest.raises(BenchmarkError, match="no file of weights: UnpicklingError"):
        loaded(trained, "net.pt", mirror)
    assert capsys.readouterr().out == ""


def test_missing_file_and_missing_mirror_say_where_it_is_wanted(trained, mirror):
    with pytest.raises(DataUnavailable, match=r"put it at own/net\.pth in the mirror") as raised:
        loaded(trained, "own/net.pth", mirror)
    assert raised.value.tried == [str(mirror / "own/net.pth")]
    with pytest.raises(DataUnavailable, match="unset"):
        loaded(trained, "own/net.pth", None)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"checkpoint": "/etc/net.pth"}, "within the mirror"),
        ({"checkpoint": "a/../../net.pth"}, "within the mirror"),
        ({"checkpoint": "net.pkl"}, "ends in .safetensors, .pth, .pt"),
        ({"checkpoint": "net.pt", "weights": "pretrained"}, "wanted weights: random"),
    ],
)
def test_checkpoint_that_cannot_be_is_refused(settings, said):
    with pytest.raises(ValidationError, match=said):
        ImageSettings(architecture="april_b", **settings)
