"""The yardsticks order the board: the oracle at the ceiling, the others at the floor."""

import pytest
import torch

DEFENSES = ["none", "withhold_position", "gaussian_noise,scale=0.1"]
TRIALS = 3
FLOOR = 20  # dB PSNR; the closed forms stand above 100


@pytest.fixture
def bench(quick):
    return quick("quick_digits_b")


@pytest.mark.parametrize("defense", DEFENSES)
def test_oracle_stands_at_the_ceiling(bench, defense):
    for record in bench.run("oracle", defense, trials=TRIALS):
        assert record.control
        assert record.metrics["mse"] == 0
        assert record.metrics["ssim"] == pytest.approx(1)
        assert record.metrics["psnr"] >= 150


@pytest.mark.parametrize("defense", DEFENSES)
@pytest.mark.parametrize("control", ["random", "prior_only", "wrong_update"])
def test_controls_stand_at_the_floor(bench, control, defense):
    for record in bench.run(control, defense, trials=TRIALS):
        assert record.control
        assert record.status == "completed"
        assert record.metrics["psnr"] < FLOOR
        assert record.metrics["ssim"] < 0.8


def test_prior_knows_more_than_noise(bench):
    prior, noise = (
        [record.metrics["psnr"] for record in bench.run(name, trials=TRIALS)]
        for name in ("prior_only", "random")
    )
    assert all(one > other for one, other in zip(prior, noise, strict=True))


def test_wrong_update_gives_the_next_trial_s_image(bench, seen_by):
    (attack,) = bench.registry.find("attack", "wrong_update")
    for defense in ("none", "withhold_position"):
        stack = seen_by(bench, "wrong_update", defense)
        answer = attack.build().reconstruct(stack[0])
        torch.testing.assert_close(answer.images, bench.round.truths[1].images, rtol=0, atol=1e-3)


def test_random_pixels_differ_from_trial_to_trial(bench, seen_by):
    (attack,) = bench.registry.find("attack", "random")
    first, second = attack.build().reconstruct_stack(seen_by(bench, "random"))
    assert first.images.min() >= 0
    assert first.images.max() < 1
    assert first.images.mean().item() == pytest.approx(0.5, abs=0.05)
    assert not torch.equal(first.images, second.images)
