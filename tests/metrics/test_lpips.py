import lpips as package
import pytest
import torch
import torchvision
from torchvision.models import AlexNet_Weights

from benchmark.errors import DataUnavailable
from benchmark.metrics import ALEXNET_FILE, ALEXNET_URL
from benchmark.metrics.lpips import lpips

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torchvision")


@pytest.fixture(scope="module")
def alexnet():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torchvision.models.alexnet()


@pytest.fixture(scope="module")
def backbone(alexnet, tmp_path_factory):
    """A file as torchvision's, random, less the classifier (220 MB that no distance reads)."""
    path = tmp_path_factory.mktemp("weights") / ALEXNET_FILE
    weights = alexnet.state_dict()
    torch.save({name: weights[name] for name in weights if name.startswith("features")}, path)
    return path


@pytest.fixture
def reference(alexnet, monkeypatch):
    """The package's own model, around the same AlexNet."""
    models = package.pretrained_networks.tv
    monkeypatch.setattr(models, "alexnet", lambda pretrained: alexnet)
    return package.LPIPS(net="alex", verbose=False)


def test_weights_are_those_torchvision_names():
    assert AlexNet_Weights.DEFAULT.url == ALEXNET_URL
    assert ALEXNET_FILE == "alexnet-owt-7be5be79.pth"


@pytest.mark.parametrize("place", [None, "nowhere.pth"])
def test_lpips_without_weights_is_none(truth, tmp_path, place):
    assert lpips(truth, truth, place and tmp_path / place) is None


def test_lpips_is_zero_for_equal_images_alone(truth, noisier, backbone):
    assert lpips(truth, truth, backbone) == 0
    assert all(lpips(truth, image, backbone) > 0 for image in noisier[1:])


def test_lpips_is_the_packages_own_forward(backbone, reference):
    first, second = torch.rand(2, 3, 70, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(first[None], second[None], normalize=True)
    assert lpips(first, second, backbone) == pytest.approx(expected.item(), rel=1e-5)


def test_small_grey_image_is_repeated_and_resized_up(truth, noisier, backbone):
    first, second = truth[:1], noisier[-1][:1]

    def enlarged(image):
        return torch.nn.Upsample((64, 64), mode="bilinear")(image[None])[0].repeat(3, 1, 1)

    expected = lpips(enlarged(first), enlarged(second), backbone)
    assert lpips(first, second, backbone) == pytest.approx(expected, rel=1e-5)


def test_model_is_loaded_once_silently_and_draws_no_shared_randomness(
    truth, backbone, tmp_path, capfd, recwarn
):
    fresh = tmp_path / "copy.pth"
    fresh.write_bytes(backbone.read_bytes())
    state = torch.get_rng_state()
    first = lpips(truth, truth / 2, fresh)
    fresh.write_bytes(b"")
    assert lpips(truth, truth / 2, fresh) == first
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


@pytest.mark.parametrize("content", [b"", b"not a torch file", {"other": torch.ones(1)}])
def test_damaged_weights_are_named_in_one_line(truth, tmp_path, content):
    path = tmp_path / ALEXNET_FILE
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(DataUnavailable, match=f"{path} .no AlexNet state dict") as caught:
        lpips(truth, truth, path)
    assert "\n" not in str(caught.value)
