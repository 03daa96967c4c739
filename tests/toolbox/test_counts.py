from itertools import combinations_with_replacement

import torch

from benchmark.seeds import generator
from benchmark.toolbox.counts import nearest_counts


def test_nearest_counts_are_nearest_of_all_with_their_sum():
    draw = generator(0, "quotas")
    multisets = list(combinations_with_replacement(range(3), 4))
    every = [torch.bincount(torch.tensor(one), minlength=3) for one in multisets]
    for _ in range(20):
        quotas = torch.randn(3, generator=draw) * 2
        quotas += (4 - quotas.sum()) / 3
        best = min(every, key=lambda counts: float((quotas - counts).square().sum()))
        assert nearest_counts(quotas, 4).tolist() == best.tolist()


def test_nothing_is_counted_where_the_sum_is_zero():
    assert nearest_counts(torch.tensor([0.9, 0.4]), 0).tolist() == [0, 0]
