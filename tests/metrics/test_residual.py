import torch

from benchmark.metrics import METRICS, ImageScorer


def test_residual_is_what_the_search_tells():
    images = torch.rand(2, 1, 4, 4)
    scorer = ImageScorer(("mse", "residual"), (1.0,))
    assert scorer.score(images, images, None, 0.25) == {"mse": 0, "residual": 0.25}
    assert METRICS["residual"].better == "lower"


def test_what_tells_none_has_no_residual():
    images = torch.rand(2, 1, 4, 4)
    scores = ImageScorer(("mse", "residual"), (1.0,)).score(images, images)
    assert scores == {"mse": 0, "residual": None}
