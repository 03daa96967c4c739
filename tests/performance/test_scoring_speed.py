"""What scoring one small trial costs: all metrics that need no weights."""

import pytest
import torch

from benchmark.metrics import ImageScorer


@pytest.mark.benchmark(group="scoring")
def test_score_of_one_small_trial(benchmark, draw):
    truth, images = torch.rand(2, 1, 1, 28, 28, generator=draw)
    scorer = ImageScorer(("psnr", "ssim", "mse", "normalised_mse", "fft2d"), (0.31,))
    scores = benchmark(scorer.score, truth, images)
    assert all(isinstance(score, float) for score in scores.values())
