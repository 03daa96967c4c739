import torch
from torch import nn
from torch.nn import functional

from benchmark.toolbox.priors import ClassLoss

MEAN, STD = torch.tensor([0.5]), torch.tensor([0.25])


def test_each_trial_has_the_mean_loss_of_its_own_images():
    network = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double().requires_grad_(False)
    images = torch.randn(3, 2, 1, 4, 4, dtype=torch.float64)
    labels = torch.tensor([[0, 1], [2, 2], [1, 0]])
    found = ClassLoss(network, MEAN, STD)(images, labels)
    for trial, loss in enumerate(found):
        logits = network(images[trial] * 0.25 + 0.5)
        assert torch.isclose(loss, functional.cross_entropy(logits, labels[trial]))
