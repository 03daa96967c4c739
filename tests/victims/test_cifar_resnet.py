import os
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from benchmark.data import load_images
from benchmark.errors import BenchmarkError, DataUnavailable, ProtocolError
from benchmark.seeds import generator
from benchmark.victims import build
from benchmark.victims.cifar_resnet import MEAN, STD

PARAMETERS = {"resnet20": 269_722, "resnet32": 464_154, "resnet56": 853_018}  # 0.27, 0.46, 0.85 M
PICTURES = {"channels": 3, "size": 32}
MIRROR = os.environ.get("GRADLEAK_DATA")


def trained(make_victim, mirror, name="resnet20", **settings):
    spec = make_victim(f"cifar/{name}", **{**PICTURES, **settings}).spec
    changes = {"weights": "pretrained", "mean": MEAN, "std": STD}
    return build(spec.model_copy(update=changes), generator(0), mirror)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """Torch hub's cache, empty."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))
    return tmp_path / "hub/checkpoints"


@pytest.mark.parametrize("name", PARAMETERS)
def test_networks_have_the_sizes_of_the_paper(make_victim, name):
    weights = make_victim(f"cifar/{name}", **PICTURES).weights()
    assert sum(weight.numel() for weight in weights.values()) == PARAMETERS[name]


def test_spec_and_seed_make_the_weights_and_another_seed_makes_others(make_victim):
    first, again, other = (
        make_victim("cifar/resnet20", **PICTURES, seed=seed).weights()["layer3.2.conv2.weight"]
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_shortcut_keeps_every_second_pixel_between_zero_channels(make_victim, draw):
    block = make_victim("cifar/resnet20", **PICTURES).network.layer2[0]
    torch.nn.init.zeros_(block.bn2.weight)  # silences the branch
    x = torch.rand(1, 16, 6, 6, generator=draw)
    answer = block(x)
    assert answer.shape == (1, 32, 3, 3)
    assert torch.equal(answer[:, 8:24], x[:, :, ::2, ::2])
    assert not answer[:, :8].any()
    assert not answer[:, 24:].any()


def test_missing_weights_are_answered_with_the_places_and_the_command(make_victim, tmp_path, hub):
    with pytest.raises(DataUnavailable) as raised:
        trained(make_victim, tmp_path)
    file = "resnet20-12fca82f.th"
    assert raised.value.name == file
    assert raised.value.tried == [str(tmp_path / "weights" / file), str(hub / file)]
    assert raised.value.command.startswith(f"curl -L --create-dirs -o {hub / file} https://")
    with pytest.raises(DataUnavailable, match=r"tried GRADLEAK_DATA/weights \(unset\), "):
        trained(make_victim, None)


def test_another_file_of_that_name_is_refused_from_either_place(make_victim, tmp_path, hub):
    for folder, mirror in ((hub, None), (tmp_path / "weights", tmp_path)):
        folder.mkdir(parents=True)
        (folder / "resnet20-12fca82f.th").write_bytes(b"other weights")
        with pytest.raises(BenchmarkError, match="content has sha256") as raised:
            trained(make_victim, mirror)
        assert str(raised.value).startswith(str(folder))


@pytest.mark.parametrize("settings", [{"channels": 1}, {"classes": 7}])
def test_trained_weights_fit_one_number_of_channels_and_classes(make_victim, tmp_path, settings):
    with pytest.raises(ProtocolError, match="are for 3 channels and 10 classes; the data has"):
        trained(make_victim, tmp_path, **settings)


@pytest.mark.skipif(MIRROR is None, reason="GRADLEAK_DATA names no mirror")
@pytest.mark.parametrize(
    ("name", "accuracy"),
    [
        ("resnet20", 0.916),
        pytest.param("resnet32", 0.928, marks=pytest.mark.slow),
        pytest.param("resnet56", 0.927, marks=pytest.mark.slow),
    ],
)
def test_trained_network_is_as_good_as_published(make_victim, name, accuracy):
    mirror = Path(MIRROR)
    victim = trained(make_victim, mirror, name)
    data = load_images("cifar10", "test", 32, mirror)
    with torch.no_grad():
        logits = torch.cat([victim(images) for images in data.images.split(256)])
    assert len(logits) == 1017
    assert (logits.argmax(1) == data.labels).double().mean() == pytest.approx(accuracy, abs=1e-3)
    assert functional.cross_entropy(logits, data.labels) < 0.5
