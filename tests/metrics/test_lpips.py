import lpips as package
import pytest
import torch
import torchvision
from torchvision.models import AlexNet_Weights, SqueezeNet1_1_Weights, VGG16_Weights

from benchmark.errors import DataUnavailable
from benchmark.metrics import LPIPS_URLS, METRICS, ImageScorer
from benchmark.metrics.lpips import lpips

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:torchvision")
NAMES = {"alex": "lpips", "vgg": "lpips_vgg", "squeeze": "lpips_squeeze"}


def features(net):
    """Return a module with torchvision's layers of a backbone, random and the same each time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if net == "alex":
            return torchvision.models.alexnet()
        if net == "squeeze":
            return torchvision.models.squeezenet1_1()
        layers = torchvision.models.vgg.make_layers(torchvision.models.vgg.cfgs["D"])
        return torch.nn.ModuleDict({"features": layers})  # not its classifier of 120 M parameters


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="module", params=NAMES)
def net(request):
    return request.param


@pytest.fixture(scope="module")
def files(net, folder):
    """The file of a backbone as torchvision's, less the classifier, which no distance reads."""
    path = folder / LPIPS_URLS[net].rpartition("/")[2]
    weights = features(net).state_dict()
    torch.save({name: weights[name] for name in weights if name.startswith("features")}, path)
    return {net: path}


@pytest.fixture
def reference(net, monkeypatch):
    """The package's own model, around the same backbone."""
    model, name = features(net), {"alex": "alexnet", "vgg": "vgg16", "squeeze": "squeezenet1_1"}
    if net == "vgg":
        model.features = model["features"]
    monkeypatch.setattr(package.pretrained_networks.tv, name[net], lambda pretrained: model)
    return package.LPIPS(net=net, verbose=False)


def test_weights_are_those_torchvision_names():
    of = {"alex": AlexNet_Weights, "vgg": VGG16_Weights, "squeeze": SqueezeNet1_1_Weights}
    assert {net: weights.DEFAULT.url for net, weights in of.items()} == LPIPS_URLS


def test_lpips_without_weights_is_none(truth, tmp_path, net):
    assert lpips(truth, truth, {}, net=net) is None
    assert lpips(truth, truth, {net: tmp_path / "nowhere.pth"}, net=net) is None


def test_each_metric_reads_its_own_backbone(truth, noisier, files, net):
    scorer = ImageScorer(tuple(NAMES.values()), (0.2,) * 3, files)
    scores = scorer.score(truth[None], noisier[-1][None])
    assert scores.pop(NAMES[net]) == pytest.approx(lpips(truth, noisier[-1], files, net=net))
    assert set(scores.values()) == {None}


def test_lpips_is_zero_for_equal_images_alone(truth, noisier, files, net):
    assert lpips(truth, truth, files, net=net) == 0
    assert lpips(truth, noisier[1], files, net=net) > 0


def test_lpips_is_the_packages_own_forward(files, reference, net):
    first, second = torch.rand(2, 3, 70, 64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(first[None], second[None], normalize=True)
    assert lpips(first, second, files, net=net) == pytest.approx(expected.item(), rel=1e-4)


def test_small_grey_image_is_repeated_and_resized_up(truth, noisier, files, net):
    first, second = truth[:1], noisier[-1][:1]

    def enlarged(image):
        return torch.nn.Upsample((64, 64), mode="bilinear")(image[None])[0].repeat(3, 1, 1)

    expected = lpips(enlarged(first), enlarged(second), files, net=net)
    assert lpips(first, second, files, net=net) == pytest.approx(expected, rel=1e-4)


def test_model_is_loaded_once_silently_and_draws_no_shared_randomness(
    truth, tmp_path, capfd, recwarn
):
    fresh = {"squeeze": tmp_path / "copy.pth"}
    torch.save(features("squeeze").state_dict(), fresh["squeeze"])
    state = torch.get_rng_state()
    first = lpips(truth, truth / 2, fresh, net="squeeze")
    fresh["squeeze"].write_bytes(b"")
    assert lpips(truth, truth / 2, fresh, net="squeeze") == first
    assert torch.equal(torch.get_rng_state(), state)
    assert capfd.readouterr() == ("", "")
    assert not recwarn.list


@pytest.mark.parametrize("content", [b"", b"not a torch file", {"other": torch.ones(1)}])
def test_damaged_weights_are_named_in_one_line(truth, tmp_path, content):
    path = tmp_path / "squeezenet1_1-b8a52dc0.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(DataUnavailable, match=f"{path} .no state dict of squeeze") as caught:
        lpips(truth, truth, {"squeeze": path}, net="squeeze")
    assert "\n" not in str(caught.value)


def test_lpips_is_a_distance_by_declaration():
    assert {METRICS[name].better for name in NAMES.values()} == {"lower"}
