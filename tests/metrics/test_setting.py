"""What the vision track hands its scorer: files of LPIPS, and the candidates of IIP."""

import pytest
import torch
from safetensors.torch import save_file

from benchmark.contract import Reconstruction
from benchmark.errors import ProtocolError
from benchmark.metrics import LPIPS_URLS
from benchmark.protocol import load_protocol
from benchmark.seeds import generator
from benchmark.tracks import load_setting
from benchmark.victims import ImageSpec, build

RESNET = {"architecture": "cifar/resnet20"}
DATA = {"channels": 1, "size": 8, "classes": 10, "mean": (0.3,), "std": (0.4,)}


@pytest.fixture
def setting(tiny, tmp_path, monkeypatch):
    """Load the tiny protocol, with changes, in a mirror of its own and no cache."""
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "hub"))

    def load(**changes):
        path = tiny(**{"metrics": ["psnr", "iip"], **changes})
        return load_setting(load_protocol(str(path)), tmp_path, torch.device("cpu"))

    return load


def scores(setting, noise):
    truth = setting.round(0).truths[0]
    drawn = torch.randn(truth.images.shape, generator=torch.Generator().manual_seed(1))
    return setting.score(truth, Reconstruction((truth.images + noise * drawn).clamp(0, 1)))


@pytest.mark.parametrize("embedding", ["pixels", RESNET])
def test_exact_image_is_identified_and_the_prior_is_not(setting, embedding):
    made = setting(iip_embedding=embedding)
    truth = made.round(0).truths[0]
    assert scores(made, 0)["iip"] == 1
    assert made.score(truth, made.prior(truth))["iip"] == 0


def test_every_private_image_of_a_small_split_is_a_candidate(setting):
    made = setting(iip_embedding="pixels")
    assert made.scorer.candidates.known.shape == (len(made.data.images), 64)


def test_features_are_what_the_last_layer_reads(setting):
    made = setting(iip_embedding=RESNET)
    network = build(
        ImageSpec(
            **RESNET,
            **DATA
            | {
                "mean": tuple(made.statistics.mean.tolist()),
                "std": tuple(made.statistics.std.tolist()),
            },
        ),
        generator(0, "tiny", "iip embedding"),
    )
    images = made.data.images[:5]
    read = made.scorer.candidates.known[:5]
    torch.testing.assert_close(network.network.linear(read), network(images), rtol=1e-3, atol=1e-4)


def test_protocol_that_states_no_embedding_has_no_number(setting):
    assert scores(setting(), 0)["iip"] is None


def test_embedding_that_cannot_be_had_leaves_the_rest_scored(setting, tmp_path):
    stated = {**RESNET, "checkpoint": "net.safetensors"}
    made = setting(iip_embedding=stated)
    assert scores(made, 0) == {"psnr": 160, "iip": None}
    network = build(ImageSpec(**RESNET, **DATA), generator(0, "any")).network
    save_file(network.state_dict(), tmp_path / "net.safetensors")
    assert scores(setting(iip_embedding=stated), 0) == {"psnr": 160, "iip": 1}


def test_metric_that_is_not_asked_for_loads_no_network(setting):
    assert setting(iip_embedding="pixels", metrics=["psnr"]).scorer.candidates is None


def test_backbones_are_found_in_the_mirror(setting, tmp_path):
    assert setting().scorer.lpips_files == {}
    (tmp_path / "weights").mkdir()
    path = tmp_path / "weights" / LPIPS_URLS["vgg"].rpartition("/")[2]
    path.touch()
    assert setting().scorer.lpips_files == {"vgg": path}


def test_embedding_and_breach_change_the_digest_and_their_absence_does_not(tiny):
    def digest(**changes):
        return load_protocol(str(tiny(**changes))).digest

    breach = {"metric": "psnr", "at": 30}
    stated = [{}, {"iip_embedding": "pixels"}, {"iip_embedding": RESNET}, {"breach": breach}]
    assert len({digest(**one) for one in stated}) == 4
    assert digest(iip_embedding=None, breach=None) == digest()
    assert digest(iip_embedding={**RESNET, "checkpoint": None}) == digest(iip_embedding=RESNET)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"breach": {"metric": "ssim", "at": 0.9}}, "the breach metric ssim is not among"),
        ({"breach": {"metric": "psnr"}}, "'breach.at' is missing"),
        ({"iip_embedding": "vgg"}, "iip_embedding"),
    ],
)
def test_key_that_does_not_fit_is_refused_in_one_line(tiny, changes, said):
    with pytest.raises(ProtocolError) as raised:
        load_protocol(str(tiny(**changes)))
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
