"""Rows without a gradient are left out, and nothing else is."""

import pytest
import torch

from benchmark.toolbox.matching.linear import linear
from benchmark.toolbox.matching.products import LowRank, compare_products
from benchmark.toolbox.matching.smooth import gelu
from benchmark.toolbox.matching.sparse_rows import gather_rows, nonzero_rows, scatter_rows

ROWS, TOKENS, WIDTH = 2, 3, 4


def normal(seed, *shape):
    draws = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=draws, dtype=torch.float64)


def layers(x):
    """Return two linear layers with GELU between, tokens apart, the first of each row's tokens."""
    weights = normal(1, WIDTH + 1, WIDTH), normal(2, WIDTH, WIDTH + 1)
    return linear(gelu(linear(x, weights[0], normal(3, WIDTH + 1))), weights[1])[:, 0]


@pytest.mark.parametrize(
    "function",
    [
        gelu,
        lambda x: linear(x, normal(1, 5, WIDTH), normal(2, 5)),
        layers,
    ],
    ids=["gelu", "linear", "class token"],
)
def test_derivatives_are_those_of_finite_differences(function):
    x = normal(0, ROWS, TOKENS, WIDTH).requires_grad_()
    torch.autograd.gradcheck(function, x)
    torch.autograd.gradgradcheck(function, x)


def test_gelu_s_derivatives_hold_far_from_zero():
    x = torch.linspace(-6, 6, 25, dtype=torch.float64, requires_grad=True)
    torch.autograd.gradcheck(gelu, x)
    torch.autograd.gradgradcheck(gelu, x)


def test_only_rows_of_zeros_are_without_a_gradient():
    gradient = torch.zeros(ROWS, TOKENS, WIDTH)
    assert nonzero_rows(gradient) is None
    gradient[0, 1, 2], gradient[1, 2, 0], gradient[1, 0, 3] = -1e-38, 1.0, torch.nan
    assert nonzero_rows(gradient).tolist() == [1, 3, 5]
    assert nonzero_rows(torch.ones(ROWS, TOKENS, WIDTH)) is None
    assert nonzero_rows(gradient[:, 0]).tolist() == [1]


def test_rows_return_to_their_places():
    gradient, alive = normal(0, ROWS, TOKENS, WIDTH), torch.tensor([1, 5])
    there = scatter_rows(alive, gather_rows(alive, gradient), gradient)
    assert nonzero_rows(there).tolist() == [1, 5]
    assert torch.equal(there.flatten(0, 1)[alive], gradient.flatten(0, 1)[alive])


@pytest.mark.parametrize("low", [False, True], ids=["whole", "low rank"])
@pytest.mark.parametrize("alive", [[], [0], [0, 2]], ids=str)
def test_products_of_living_tokens_are_those_of_all(low, alive):
    inputs, left, right = normal(0, 2, 3, 12), normal(1, 2, 12, 1), normal(2, 2, 12, 1)
    kept = torch.zeros(3, 1, dtype=torch.float64).index_fill_(0, torch.tensor(alive).long(), 1)
    leaves = inputs.requires_grad_(), normal(3, 2, 3, 12).requires_grad_()
    outputs, seen = kept * leaves[1], left @ right.mT
    formed = outputs.mT @ inputs
    wanted = formed.square().sum((1, 2)), (formed * seen).sum((1, 2))
    found = compare_products(inputs, outputs, seen, LowRank(left, right) if low else None)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)
        pairs = (torch.autograd.grad(of.sum(), leaves, retain_graph=True) for of in (one, other))
        for derivative, usual in zip(*pairs, strict=True):
            torch.testing.assert_close(derivative, usual)
