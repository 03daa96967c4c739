import pytest
import torch

from benchmark.toolbox.inverter import (
    Example,
    Inverter,
    InverterShape,
    fit,
    least_over_pairings,
)


def test_order_within_a_batch_costs_nothing(draw):
    wanted = torch.rand(3, 4, 1, 2, 2, generator=draw)
    assert least_over_pairings(wanted[:, [2, 0, 3, 1]], wanted).item() == 0
    assert least_over_pairings(wanted[[1, 0, 2]], wanted).item() > 0


def test_one_image_has_the_plain_mean_squared_error(draw):
    one, other = torch.rand(2, 5, 1, 1, 3, 3, generator=draw)
    expected = torch.nn.functional.mse_loss(one, other)
    assert least_over_pairings(one, other) == pytest.approx(expected.item())


def test_linear_updates_are_inverted_and_the_best_epoch_stays(draw):
    torch.manual_seed(0)
    images = torch.rand(600, 1, 1, 2, 2, generator=draw)
    read = images.flatten(1) @ torch.randn(4, 12, generator=draw)
    made = Inverter(InverterShape({"a": 12}, (1, 1, 2, 2), bins=12, hidden=200))
    held_out = Example(read[500:], images[500:])
    least: list[float] = []
    error = fit(made, Example(read[:500], images[:500]), held_out, 40, least.append)
    assert error == min(least) < 0.2 * images.var()
    with torch.no_grad():
        kept = least_over_pairings(made(held_out.inputs), held_out.images)
    assert kept.item() == pytest.approx(error)
