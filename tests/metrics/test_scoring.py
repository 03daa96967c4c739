import subprocess
import sys

import pytest
import torch

from benchmark.errors import PluginError, ProtocolError
from benchmark.metrics import IMAGE_METRICS, METRICS, TEXT_METRICS, ImageScorer, metric

STD = (0.2, 0.3, 0.1)
PIXEL_METRICS = tuple(name for name in IMAGE_METRICS if name != "lpips")
EVERYTHING = ImageScorer(IMAGE_METRICS, STD)


def test_metrics_stand_in_their_order():
    images = ("psnr", "ssim", "mse", "normalised_mse", "fft2d", "lpips")
    more = ("lpips_vgg", "lpips_squeeze", "iip", "label_accuracy")
    assert tuple(METRICS) == (*images, *more, *TEXT_METRICS, "residual")
    assert images == IMAGE_METRICS  # part of the digests of protocols that name none


def test_unknown_metric_is_refused_with_the_known_ones():
    with pytest.raises(ProtocolError, match="'pnsr' is unknown; known: psnr, ssim, mse"):
        metric("pnsr")
    with pytest.raises(ProtocolError, match="pnsr"):
        ImageScorer(("pnsr",), STD)


def test_listing_imports_nothing_heavy():
    code = """
import sys
from benchmark.metrics import METRICS
for m in METRICS.values(): print(m.name, m.unit, m.better, m.description)
print(sorted({"torch", "torchvision", "numpy", "scipy", "skimage", "lpips"} & set(sys.modules)))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    *lines, imported = run.stdout.splitlines()
    assert (len(lines), imported) == (len(METRICS), "[]")


@pytest.mark.parametrize("name", PIXEL_METRICS)
def test_noisier_image_never_scores_better(name, truth, noisier):
    scorer = ImageScorer((name,), STD)
    scores = [scorer.score(truth[None], image[None])[name] for image in noisier]
    assert scores == sorted(scores, reverse=METRICS[name].better == "higher")
    assert len(set(scores)) == len(scores)


def test_lpips_without_weights_is_none_and_the_rest_is_scored(truth, noisier):
    scores = EVERYTHING.score(truth[None], noisier[2][None])
    assert tuple(scores) == IMAGE_METRICS
    assert [name for name, score in scores.items() if score is None] == ["lpips"]


def test_order_of_the_batch_carries_no_credit(truth, noisier):
    batch = torch.stack([truth, 1 - truth, truth.flip(1)])
    images = (batch + noisier[2] - truth).clamp(0, 1)
    expected = EVERYTHING.score(batch, images)
    assert EVERYTHING.score(batch, images[[2, 0, 1]]) == expected


def test_score_of_a_batch_is_the_mean_over_its_pairs(truth, noisier):
    batch, images = torch.stack([truth, 1 - truth]), torch.stack([noisier[1], 1 - noisier[4]])
    together = ImageScorer(PIXEL_METRICS, STD).score(batch, images)
    for name in PIXEL_METRICS:
        given = {"std": STD} if name == "normalised_mse" else {}
        alone = [METRICS[name].score(*pair, **given) for pair in zip(batch, images, strict=True)]
        assert together[name] == pytest.approx(sum(alone) / 2, rel=1e-12)


def test_pixels_outside_the_range_are_clipped_before_scoring(truth):
    wild = torch.where(truth > 0.5, truth + 0.6, truth - 0.6)[None]
    assert EVERYTHING.score(truth[None], wild) == EVERYTHING.score(truth[None], wild.clamp(0, 1))


def test_wrong_shape_is_refused_with_both_shapes(truth):
    with pytest.raises(PluginError, match=r"shape \(1, 1, 24, 32\); wanted \(1, 3, 24, 32\)"):
        EVERYTHING.score(truth[None], truth[None, :1])


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_image_that_is_not_finite_is_refused(truth, value):
    broken = truth[None].clone()
    broken[0, 0, 0, 0] = value
    with pytest.raises(PluginError, match="finite"):
        EVERYTHING.score(truth[None], broken)


def test_normalisation_of_other_channels_is_refused(truth):
    with pytest.raises(ProtocolError, match="std has 3 channels; wanted 1"):
        EVERYTHING.score(truth[None, :1], truth[None, :1])


def test_scoring_leaves_its_arguments_and_takes_images_that_carry_gradients(truth):
    images = (2 * truth[None]).requires_grad_()
    before = images.detach().clone()
    EVERYTHING.score(truth[None], images)
    assert torch.equal(images.detach(), before)
