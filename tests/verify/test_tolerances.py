import pytest

from benchmark.metrics import METRICS
from benchmark.verify.tolerances import allowed, chaotic, distance, equal


@pytest.mark.parametrize(
    ("metric", "recorded", "again", "same"),
    [
        ("psnr", 15.0, 15.25, True),
        ("psnr", 15.0, 15.35, False),
        ("psnr", 20.0, 20.15, True),
        ("psnr", 20.0, 20.25, False),
        ("psnr", 58.98, 58.78, True),
        ("psnr", 52.0, 51.6, False),
        ("psnr", 140.0, 150.0, True),
        ("psnr", 140.0, 55.0, False),
        ("ssim", 0.8, 0.8005, True),
        ("ssim", 0.8, 0.8015, False),
        ("ssim", 0.5, 0.52, True),
        ("ssim", 0.5, 0.54, False),
        ("ssim", 0.69, 0.71, False),
        ("mse", 1e-15, 3e-15, True),
        ("mse", 0.01, 0.0104, True),
        ("mse", 0.01, 0.011, False),
        ("token_accuracy", 0.5, 0.5, True),
        ("token_accuracy", 0.5, 0.53, False),
        ("certified_share", 194 / 512, 192 / 512, True),
        ("certified_share", 194 / 512, 186 / 512, False),
        ("lpips", None, None, True),
        ("lpips", None, 0.1, False),
    ],
)
def test_numbers_of_two_machines_are_one_answer_or_not(metric, recorded, again, same):
    assert allowed(metric, recorded, again) is same
    assert allowed(metric, again, recorded) is same


def test_where_rounding_decides_more_is_allowed_and_not_everything():
    assert chaotic("psnr", 33.1, 26.4)
    assert not allowed("psnr", 33.1, 26.4)
    assert not chaotic("psnr", 33.1, 11.0)
    assert chaotic("psnr", 62.3, 100.1)
    assert not chaotic("psnr", 100.1, 40.0)
    assert not chaotic("token_accuracy", 0.9, 0.1)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_allows_itself_and_not_a_leap(name):
    assert allowed(name, 0.5, 0.5)
    assert not allowed(name, 0.5, 0.9)
    assert equal(name, 0.5, 0.5)
    assert not equal(name, 0.5, 0.5 + 1e-15)


def test_distance_of_what_is_not_there_is_infinite():
    assert distance(None, None) == 0
    assert distance(None, 1.0) == float("inf")
    assert distance(1.0, 1.5) == 0.5
