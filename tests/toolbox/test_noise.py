from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from benchmark.contract import Update
from benchmark.toolbox import noise
from benchmark.toolbox.noise import add_noise, gaussian, laplacian

UPDATE = Update({"a": torch.full((300, 400), 2.0), "b": torch.full((50,), -3.0)})
LAWS = [gaussian, laplacian]


def philox(seed=0):
    return np.random.Generator(np.random.Philox(key=seed))


def added(std, draw, seed=0):
    noised = add_noise(UPDATE, std, draw, philox(seed))
    return Update({name: noised[name] - UPDATE[name] for name in UPDATE})


@pytest.mark.parametrize("draw", LAWS)
@pytest.mark.parametrize("std", [0.01, 1.0])
def test_noise_has_one_deviation_for_all_tensors(draw, std):
    made = added(std, draw)
    assert made["a"].std().item() == pytest.approx(std, rel=0.02)
    assert made["b"].std().item() == pytest.approx(std, rel=0.4)


@pytest.mark.parametrize(("draw", "kurtosis", "slack"), [(gaussian, 3, 0.05), (laplacian, 6, 0.2)])
def test_draws_have_mean_0_variance_1_and_the_law_s_kurtosis(draw, kurtosis, slack):
    drawn = draw(torch.Size((1000, 2000)), philox()).double()
    assert drawn.mean().abs() < 0.005
    assert drawn.var().item() == pytest.approx(1, abs=0.01)
    assert (drawn**4).mean().item() == pytest.approx(kurtosis, abs=slack)


def test_the_same_draws_never_make_the_same_noise_twice():
    draws = philox()
    first, second = (add_noise(UPDATE, 1.0, gaussian, draws) for _ in range(2))
    assert not torch.equal(first["a"], second["a"])


@pytest.mark.parametrize("draw", LAWS)
def test_same_seed_makes_the_same_bits_and_another_seed_others(draw):
    first, again, other = (added(1.0, draw, seed) for seed in (0, 0, 1))
    for name in UPDATE:
        assert torch.equal(first[name], again[name])
        assert not torch.equal(first[name], other[name])


@pytest.mark.parametrize("draw", LAWS)
def test_draws_do_not_depend_on_the_number_of_threads(draw, monkeypatch):
    first = added(1.0, draw)
    for workers in (1, 7):
        with ThreadPoolExecutor(workers) as threads:
            monkeypatch.setattr(noise, "_THREADS", threads)
            again = added(1.0, draw)
        assert all(torch.equal(first[name], again[name]) for name in UPDATE)


def test_equal_tensors_get_different_draws_and_the_update_stays_as_it_was():
    twins = Update({"a": torch.ones(100), "b": torch.ones(100)})
    noised = add_noise(twins, 1.0, gaussian, philox())
    assert list(noised) == ["a", "b"]
    assert not torch.equal(noised["a"], noised["b"])
    assert torch.equal(twins["a"], torch.ones(100))


def test_no_deviation_adds_nothing():
    assert added(0.0, gaussian).norm() == 0
