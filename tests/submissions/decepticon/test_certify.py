"""What is not sure of items that fit in more than one way."""

from dataclasses import replace
from types import SimpleNamespace

import torch

from submissions.attacks.decepticon.certify import certify
from submissions.attacks.decepticon.items import Items


def test_a_group_of_two_sequences_taken_for_one_is_not_sure():
    items = Items(
        position=torch.tensor([4, 5, 6, 7, 8, 4, 5, 6, 7, 8, 8]),
        token=torch.arange(11),
        group=torch.tensor([0] * 5 + [1] * 6),
        block=torch.zeros(11, dtype=torch.int64),
        code=torch.ones(11),
        copies=torch.ones(11, dtype=torch.int64),
        sure=torch.ones(11, dtype=torch.bool),
    )
    tables = SimpleNamespace(visible=lambda position: position[:, None] >= torch.arange(3))
    sure = certify(items, torch.tensor([1, 1]), 2, tables)
    assert sure.sure.tolist() == [True] * 5 + [False] * 6
    alone = replace(items, group=torch.zeros(11, dtype=torch.int64)).where(items.group == 1)
    sure = certify(alone, torch.tensor([1]), 1, tables)
    assert sure.sure.tolist() == [True] * 4 + [False] * 2
