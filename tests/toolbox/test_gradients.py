"""The gradient of given images is the one that a client with them would send."""

import pytest
import torch

from benchmark.contract import ImageBatch
from benchmark.federation import fedsgd
from benchmark.toolbox.gradients import gradient_of_images


@pytest.mark.parametrize("defense", ["none", "precode", "mjp,positions=indexed"])
def test_gradient_is_that_of_a_client_whose_defense_hides_nothing(bench, seen_by, defense):
    """PRECODE's divergence and MJP's localisation are parts of the loss."""
    (seen,) = seen_by(bench(), "prior_only", defense, trials=1)
    spec = seen.model.spec
    images = torch.rand(3, spec.channels, spec.size, spec.size)
    labels = torch.arange(3)
    seen.model.requires_grad_(False)  # as a search leaves it
    found = gradient_of_images(seen, images, labels)
    seen.model.requires_grad_(True)
    wanted = fedsgd(seen.model, ImageBatch(images, labels))
    assert list(found) == list(seen.update)
    for name in found:
        torch.testing.assert_close(found[name], wanted[name])
