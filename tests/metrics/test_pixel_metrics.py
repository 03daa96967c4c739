"""MSE, PSNR, SSIM and FFT2D against outside references."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from skimage.metrics import (
    mean_squared_error,
    peak_signal_noise_ratio,
    structural_similarity,
)
from torch import Tensor
from torch.nn.functional import mse_loss
from torchvision.transforms.functional import normalize

from benchmark.metrics.fft2d import fft2d
from benchmark.metrics.mse import mse, normalised_mse
from benchmark.metrics.psnr import psnr
from benchmark.metrics.ssim import ssim


@st.composite
def pairs(draw: st.DrawFn, smallest: int = 1) -> tuple[Tensor, Tensor]:
    side = st.integers(smallest, smallest + 20)
    shape = draw(st.tuples(st.sampled_from([1, 3]), side, side))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    return torch.rand(shape, generator=generator), torch.rand(shape, generator=generator)


def naive_spectrum(image: Tensor) -> np.ndarray:
    """Each channel's discrete Fourier transform, written as its defining sum."""
    _, height, width = image.shape
    rows, columns = (np.outer(np.arange(side), np.arange(side)) / side for side in (height, width))
    left, right = np.exp(-2j * np.pi * rows), np.exp(-2j * np.pi * columns)
    return np.einsum("uy,cyx,xv->cuv", left, image.double().numpy(), right)


@given(pairs())
def test_mse_and_psnr_are_those_of_skimage(pair):
    first, second = (image.double().numpy() for image in pair)
    assert mse(*pair) == pytest.approx(mean_squared_error(first, second), rel=1e-12)
    expected = peak_signal_noise_ratio(first, second, data_range=1)
    assert psnr(*pair) == pytest.approx(expected, rel=1e-12)


@given(pairs())
def test_normalised_mse_is_the_mse_of_torchvisions_normalised_images(pair):
    channels = len(pair[0])
    mean, std = [0.5, 0.4, 0.3][:channels], [0.2, 0.3, 0.1][:channels]
    expected = mse_loss(*(normalize(image.double(), mean, std) for image in pair))
    assert normalised_mse(*pair, tuple(std)) == pytest.approx(expected.item(), rel=1e-9)


@given(pairs(smallest=11))
def test_ssim_is_that_of_skimage_on_channels_last(pair):
    first, second = (image.double().permute(1, 2, 0).numpy() for image in pair)
    settings = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    expected = structural_similarity(first, second, data_range=1, channel_axis=2, **settings)
    assert ssim(*pair) == pytest.approx(expected, abs=1e-12)


def test_ssim_at_the_centre_of_one_window_is_the_papers_formula(truth):
    first, second = truth[:1, :11, :11].double(), truth[1:2, :11, :11].double()
    weights = torch.exp(-(torch.arange(-5, 6).double() ** 2) / (2 * 1.5**2))
    window = torch.outer(weights, weights) / weights.sum() ** 2

    def average(values: Tensor) -> Tensor:
        return (window * values).sum()

    means = average(first), average(second)
    variances = average((first - means[0]) ** 2) + average((second - means[1]) ** 2)
    covariance = average((first - means[0]) * (second - means[1]))
    upper = (2 * means[0] * means[1] + 0.01**2) * (2 * covariance + 0.03**2)
    lower = (means[0] ** 2 + means[1] ** 2 + 0.01**2) * (variances + 0.03**2)
    assert ssim(first, second) == pytest.approx(float(upper / lower), abs=1e-12)


@pytest.mark.parametrize("shape", [(1, 10, 11), (3, 28, 10)])
def test_ssim_of_an_image_smaller_than_its_window_is_none(shape):
    assert ssim(torch.rand(shape), torch.rand(shape)) is None


@given(pairs())
def test_fft2d_is_that_of_the_naively_written_spectra(pair):
    first, second = (naive_spectrum(image) for image in pair)
    cosine = np.vdot(first, second) / (np.linalg.norm(first) * np.linalg.norm(second))
    assert fft2d(*pair) == pytest.approx(abs(1 - cosine), abs=1e-12)


def test_fft2d_tells_images_whose_cosine_rounds_to_one(truth):
    near = truth.double()
    near[0, 5, 5] += 1e-9
    assert 0 < fft2d(truth, near) < 1e-18


def test_fft2d_of_one_black_image_is_one_and_of_two_is_zero(truth):
    black = torch.zeros_like(truth)
    assert (fft2d(truth, black), fft2d(black, truth), fft2d(black, black)) == (1, 1, 0)


@given(pairs(smallest=11))
def test_equal_images_hit_the_ceiling(pair):
    image, std = pair[0], (0.3,) * len(pair[0])
    assert (psnr(image, image), ssim(image, image)) == (160, pytest.approx(1, abs=1e-12))
    errors = mse(image, image), normalised_mse(image, image, std), fft2d(image, image)
    assert errors == (0, 0, 0)


def test_psnr_knows_a_float32_rounding_from_the_ceiling(truth):
    bright = torch.ones_like(truth)
    assert 140 < psnr(bright, torch.nextafter(bright, torch.zeros(()))) < 160
    assert psnr(bright.double(), bright.double() - 1e-9) == 160
    assert math.isclose(psnr(bright, bright - 1), 0, abs_tol=1e-12)
