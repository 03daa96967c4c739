"""The L1 distance and its derivatives against autograd on the formed gradient."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmark.contract import Update
from benchmark.toolbox.matching.absolute import absolute_distance
from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.gradients import EmbeddingLookup, Product, Trace


def normal(seed, *shape):
    return torch.randn(
        shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).requires_grad_()


def plain(inputs, outputs, seen):
    return (torch.einsum("nto,nti->noi", outputs, inputs) - seen).abs().sum((1, 2))


def check(found, wanted, variables):
    """Compare values, and derivatives under a factor a trial."""
    torch.testing.assert_close(found, wanted, rtol=1e-12, atol=1e-12)
    factors = torch.linspace(-1, 2, len(found), dtype=torch.float64)
    for one, other in zip(
        torch.autograd.grad((factors * found).sum(), variables),
        torch.autograd.grad((factors * wanted).sum(), variables),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@given(
    trials=st.integers(1, 4),
    tokens=st.integers(1, 7),
    outs=st.integers(1, 9),
    ins=st.integers(1, 9),
    seed=st.integers(0, 99),
)
def test_distance_and_derivatives_agree_with_autograd(trials, tokens, outs, ins, seed):
    inputs, outputs = normal(seed, trials, tokens, ins), normal(seed + 1, trials, tokens, outs)
    seen = list(normal(seed + 2, trials, outs, ins).detach())
    found = absolute_distance(inputs, outputs, seen)
    check(found, plain(inputs, outputs, torch.stack(seen)), (inputs, outputs))


def test_factors_need_not_be_contiguous():
    inputs, outputs = normal(0, 3, 6, 5), normal(1, 3, 8, 6)
    seen = list(normal(2, 3, 8, 5).detach())
    turned, expanded = outputs.mT, inputs[:1].expand(3, -1, -1)
    found = absolute_distance(expanded, turned, seen)
    check(found, plain(expanded, turned, torch.stack(seen)), (inputs, outputs))


def test_distance_of_equal_gradients_is_zero_and_so_are_its_derivatives():
    inputs, outputs = (torch.ones(2, 3, 4, requires_grad=True) for _ in range(2))
    found = absolute_distance(inputs, outputs, list(torch.full((2, 4, 4), 3.0)))
    assert not found.any()
    assert not torch.cat(torch.autograd.grad(found.sum(), (inputs, outputs))).any()


def test_a_trial_that_is_not_finite_leaves_its_neighbours_alone():
    inputs, outputs = normal(0, 3, 6, 5), normal(1, 3, 6, 8)
    seen = list(normal(2, 3, 8, 5).detach())
    alone = absolute_distance(inputs[:1], outputs[:1], seen[:1])
    seen[1] = torch.full_like(seen[1], torch.nan)
    found = absolute_distance(inputs, outputs, seen)
    assert torch.equal(found[:1], alone)
    assert found.isnan().tolist() == [False, True, False]
    (derivative,) = torch.autograd.grad(found[0] + found[2], inputs)
    assert derivative[[0, 2]].isfinite().all()


def test_observed_gradients_stay_as_they_were():
    seen = normal(2, 2, 8, 5).detach()
    before = seen.clone()
    absolute_distance(normal(0, 2, 6, 5), normal(1, 2, 6, 8), list(seen))
    assert torch.equal(seen, before)


@pytest.mark.parametrize("kind", ["product", "lookup", "vector", "formed"])
def test_target_gives_the_distance_of_every_kind_of_gradient(kind):
    outputs = normal(1, 3, 6, 8)
    if kind == "lookup":
        gradient = EmbeddingLookup(torch.arange(18).view(3, 6) % 5, outputs, 5)
        whole, shape = gradient.form().flatten(1), (5, 8)
    elif kind == "product":
        gradient = Product(normal(0, 3, 6, 5), outputs)
        whole, shape = gradient.form().flatten(1), (8, 5)
    else:
        whole = gradient = outputs.sum(1) if kind == "vector" else outputs.flatten(1)
        shape = (8,) if kind == "vector" else (6, 8)
    seen = normal(2, 3, *shape).detach()
    target = Target([Update({"w": one}) for one in seen], ["w"])
    found = target.absolute(Trace(torch.zeros(3), {"w": gradient}), "w")
    assert found.dtype == torch.float64
    check(found, (whole - seen.flatten(1)).abs().sum(1), (outputs,))
