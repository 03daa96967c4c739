from itertools import permutations

import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmark.metrics import assignment


@given(st.permutations(range(6)), st.integers(0, 2**31))
def test_pairing_undoes_a_permutation(order, seed):
    truth = torch.rand(6, 3, 4, 5, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(truth[order][assignment(truth, truth[order])], truth)


@given(st.integers(1, 5), st.integers(0, 2**31))
def test_pairing_has_the_least_mse_of_all_permutations(size, seed):
    truth, images = torch.rand(2, size, 1, 3, 3, generator=torch.Generator().manual_seed(seed))
    best = min(
        permutations(range(size)), key=lambda order: (truth - images[list(order)]).square().sum()
    )
    assert assignment(truth, images).tolist() == list(best)


def test_pairing_tells_bright_images_that_differ_in_one_rounding():
    truth = torch.ones(2, 1, 8, 8)
    truth[1, 0, 0, 0] = torch.nextafter(truth[1, 0, 0, 0], torch.tensor(0.0))
    assert assignment(truth, truth.flip(0)).tolist() == [1, 0]
