import pytest
import torch
from torch import nn

from benchmark.errors import NotApplicable
from benchmark.toolbox.priors import BatchNormStatistics

MEAN, STD = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])


class Normalised(nn.Module):
    """Takes pixels and normalises inside itself, as a victim does."""

    def __init__(self, body):
        super().__init__()
        self.body = body

    def forward(self, images):
        return self.body((images - 0.45) / 0.25)


def network(seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        body = nn.Sequential(
            nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Conv2d(4, 5, 3), nn.BatchNorm2d(5)
        )
        for layer in body:
            if isinstance(layer, nn.BatchNorm2d):
                layer.running_mean.normal_()
                layer.running_var.uniform_(0.5, 2)
    return Normalised(body).eval().double().requires_grad_(False)


def drawn(*shape):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def distances(model, pixels):
    """Return the distance of each layer, one trial alone, without a hook."""
    features, found = (pixels - 0.45) / 0.25, []
    for layer in model.body:
        if isinstance(layer, nn.BatchNorm2d):
            channels = features.transpose(0, 1).flatten(1)
            mean = channels.mean(1)
            variance = ((channels - mean[:, None]) ** 2).mean(1)
            off_mean = (mean - layer.running_mean).square().sum().sqrt()
            found.append(off_mean + (variance - layer.running_var).square().sum().sqrt())
        features = layer(features)
    return found


def hooks(model):
    return sum(len(layer._forward_pre_hooks) + len(layer._forward_hooks) for layer in model.body)


@pytest.mark.parametrize("first_weight", [1.0, 10.0])
def test_trials_in_one_pass_agree_with_a_naive_loop(first_weight):
    model, images = network(), drawn(3, 2, 3, 8, 7)
    prior = BatchNormStatistics(model, MEAN, STD, first_weight)
    for trial, penalty in zip(images, prior(images), strict=True):
        first, second = distances(model, trial * STD.view(-1, 1, 1) + MEAN.view(-1, 1, 1))
        assert penalty.item() == pytest.approx((first_weight * first + second).item())


def test_penalty_is_zero_for_the_trial_whose_statistics_the_network_saw():
    model, images = network(), drawn(2, 4, 3, 8, 8)
    pixels = images[1] * STD.view(-1, 1, 1) + MEAN.view(-1, 1, 1)
    for layer, place in ((model.body[1], 1), (model.body[4], 4)):  # the second after the first
        features = model.body[:place]((pixels - 0.45) / 0.25)
        layer.running_mean.copy_(features.mean((0, 2, 3)))
        layer.running_var.copy_(features.var((0, 2, 3), correction=0))
    other, seen = BatchNormStatistics(model, MEAN, STD)(images)
    assert seen < 1e-12
    assert other > 1e-3


def test_gradient_is_that_of_finite_differences_and_each_trial_has_its_own():
    prior = BatchNormStatistics(network(), MEAN, STD)
    images = drawn(2, 2, 3, 6, 6).requires_grad_()
    assert torch.autograd.gradcheck(prior, images, fast_mode=True)
    (gradient,) = torch.autograd.grad(prior(images)[1], images)
    assert gradient[1].any()
    assert not gradient[0].any()


def test_a_layer_that_runs_twice_counts_twice_and_only_its_first_run_is_weighted():
    layer = nn.BatchNorm2d(3).eval()
    images = drawn(2, 1, 3, 4, 4).float()
    once, twice = (
        BatchNormStatistics(nn.Sequential(*[layer] * runs), MEAN, STD)(images) for runs in (1, 2)
    )
    weighted = BatchNormStatistics(nn.Sequential(layer, layer), MEAN, STD, 10.0)(images)
    assert (twice > once).all()
    torch.testing.assert_close(weighted - twice, 9 * once)


def test_hooks_are_removed_also_when_the_network_fails():
    model = network()
    prior = BatchNormStatistics(model, MEAN, STD)
    prior(drawn(1, 1, 3, 8, 8))
    assert hooks(model) == 0
    with pytest.raises(RuntimeError):
        prior(drawn(1, 1, 3, 3, 3))  # the second convolution has nothing left to read
    assert hooks(model) == 0


def test_the_network_is_left_as_it_was():
    model = network()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    BatchNormStatistics(model, MEAN, STD)(drawn(2, 2, 3, 8, 8))
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    "model",
    [nn.Conv2d(3, 4, 3), nn.Sequential(nn.BatchNorm2d(3, track_running_stats=False))],
    ids=["no BatchNorm2d", "no running statistics"],
)
def test_a_network_without_statistics_is_not_applicable(model):
    with pytest.raises(NotApplicable, match="holds no BatchNorm2d with running statistics"):
        BatchNormStatistics(model, MEAN, STD)


def test_a_network_in_training_mode_is_refused_before_it_moves_its_statistics():
    model = network().train()
    before = model.body[1].running_mean.clone()
    with pytest.raises(ValueError, match="training mode"):
        BatchNormStatistics(model, MEAN, STD)(drawn(1, 1, 3, 8, 8))
    assert torch.equal(model.body[1].running_mean, before)
    assert hooks(model) == 0
