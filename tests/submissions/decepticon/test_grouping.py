"""Whose each token is, by the marks that it carries alone or with others of its bin."""

import torch

from benchmark.seeds import generator
from submissions.attacks.decepticon.certify import twins
from submissions.attacks.decepticon.grouping import group
from submissions.attacks.decepticon.marks import Marked
from submissions.attacks.decepticon.readout import Readings

KNOWN = torch.randn(3, 6, generator=generator(0, "marks"))


def marked(known, held, places, factors, seen=None):
    """Return readings whose bins hold what `factors` times the marks of their groups add up to.

    Args:
        known: (groups, marks).
        held: a list of groups for each bin.
        places: of each reading.
        factors: of each reading.
        seen: which marks each reading carries; all of them.
    """
    owner = torch.tensor([one for owners in held for one in owners])
    bins = torch.tensor([i for i, owners in enumerate(held) for _ in owners])
    count = torch.tensor([len(owners) for owners in held for _ in owners])
    factors = torch.tensor(factors)
    token, exact = torch.arange(len(bins)), torch.ones_like(bins, dtype=torch.bool)
    readings = Readings(bins, torch.tensor(places), token, factors, count, exact)
    sums = torch.zeros(len(held), known.shape[1])
    sums.index_add_(0, bins, factors[:, None] * known[owner])
    seen = torch.ones(len(bins), known.shape[1], dtype=torch.bool) if seen is None else seen
    return Marked(readings, sums, factors, seen, share=2)


def test_three_tokens_share_a_bin_where_no_two_do():
    one = marked(KNOWN, [[0], [1], [2], [2, 0, 1]], [0, 0, 0, 1, 2, 3], [1, 1, 1, 1, 1.2, 0.8])
    found, sure = group(one, KNOWN, batch=3, length=4)
    assert found.tolist() == [0, 1, 2, 2, 0, 1]
    assert sure.all()


def test_tokens_of_one_factor_on_a_bin_are_not_sure():
    one = marked(KNOWN, [[0], [1], [2], [2, 0, 1]], [0, 0, 0, 1, 2, 3], [1, 1, 1, 1, 1.2, 1.0])
    assert twins(one.readings).tolist() == [False, False, False, True, False, True]
    found, sure = group(one, KNOWN, batch=3, length=4)
    assert sorted(found[3:].tolist()) == [0, 1, 2]
    assert sure.tolist() == (~twins(one.readings)).tolist()[:3] + [False] * 3


def test_of_sums_that_are_as_right_none_is_sure():
    known = KNOWN.clone()
    known[1] = known[0]
    one = marked(known, [[0], [1], [2], [2, 0]], [0, 0, 0, 1, 2], [1, 1, 1, 1, 1.2])
    found, sure = group(one, known, batch=3, length=4)
    assert found[3] == 2
    assert found[4] in (0, 1)
    assert not sure[3:].any()


def test_a_first_token_on_a_bin_has_its_own_mark_for_those_it_does_not_see():
    known = KNOWN.clone()
    known[:, :2] = known[0, :2]  # sequences of one first token
    seen = torch.ones(5, 6, dtype=torch.bool)
    seen[3, 2:] = False
    one = marked(known, [[0], [1], [2], [2, 1]], [1, 1, 1, 0, 3], [1, 1, 1, 1, 1.2], seen)
    one.sums[3] = known[0, :2].repeat(3) + 1.2 * known[1]
    found, sure = group(one, known, batch=3, length=4)
    assert found[4] == 1
    assert not sure[3]  # of whichever sequence
