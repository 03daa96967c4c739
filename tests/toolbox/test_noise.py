from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from benchmark.contract import Update
from benchmark.toolbox import noise
from benchmark.toolbox.noise import add_noise, gaussian, laplacian

UPDATE = Update({"a": torch.full((300, 400), 2.0), "b": torch.full((50,), -3.0)})
LAWS = [gaussian, laplacian]


def added(scale, draw, seed=0):
    noised = add_noise(UPDATE, scale, draw, torch.Generator().manual_seed(seed))
    return Update({name: noised[name] - UPDATE[name] for name in UPDATE})


@pytest.mark.parametrize("draw", LAWS)
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_noise_norm_is_the_scale_times_the_update_s_norm(draw, scale):
    assert added(scale, draw).norm() == pytest.approx(scale * UPDATE.norm(), rel=0.02)


@pytest.mark.parametrize("draw", LAWS)
def test_noise_has_one_deviation_for_all_tensors(draw):
    made = added(1.0, draw)
    wanted = UPDATE.norm() / sum(tensor.numel() for tensor in UPDATE.values()) ** 0.5
    assert made["a"].std().item() == pytest.approx(wanted, rel=0.02)
    assert made["b"].std().item() == pytest.approx(wanted, rel=0.4)


@pytest.mark.parametrize(("draw", "kurtosis", "slack"), [(gaussian, 3, 0.05), (laplacian, 6, 0.2)])
def test_draws_have_mean_0_variance_1_and_the_law_s_kurtosis(draw, kurtosis, slack):
    drawn = draw(torch.Size((1000, 2000)), torch.Generator().manual_seed(0)).double()
    assert drawn.mean().abs() < 0.005
    assert drawn.var().item() == pytest.approx(1, abs=0.01)
    assert (drawn**4).mean().item() == pytest.approx(kurtosis, abs=slack)


def test_laplacian_draws_are_finite_at_the_ends_of_the_uniform(monkeypatch):
    ends = torch.tensor([-1.0, 0.0, 1 - 2**-24])
    monkeypatch.setattr(torch.Tensor, "uniform_", lambda t, *_, **__: t.copy_(ends))
    drawn = laplacian(torch.Size((3,)), torch.Generator())
    assert drawn.isfinite().all()
    assert drawn[1] == 0
    assert drawn[0] == -drawn[2] < -10


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
    noised = add_noise(twins, 1.0, gaussian, torch.Generator())
    assert list(noised) == ["a", "b"]
    assert not torch.equal(noised["a"], noised["b"])
    assert torch.equal(twins["a"], torch.ones(100))


def test_scale_zero_adds_nothing():
    assert added(0.0, gaussian).norm() == 0
