import pytest
import torch

from benchmark.errors import PluginError
from benchmark.metrics import Excerpt, excerpt


def pieces(ids):
    assert all(one >= 0 for one in ids)
    return [f" w{one}" for one in ids]


def made(truth, answer, certain=None, **given):
    doubts = None if certain is None else torch.tensor(certain)
    return excerpt(torch.tensor(truth), torch.tensor(answer), doubts, pieces, **given)


def test_excerpt_is_the_first_sequence_beside_its_own_answer():
    certain = [[False, False, True], [True, False, False]]
    shown = made([[1, 2, 3], [4, 5, 6]], [[4, 5, 6], [1, -1, 9]], certain)
    assert shown == Excerpt(
        truth=(" w1", " w2", " w3"),
        answer=(" w1", "", " w9"),
        exact=(True, False, False),
        certain=(True, False, False),
    )


def test_excerpt_without_certified_tokens_says_none():
    assert made([[1]], [[1]]).certain is None


def test_excerpt_ends_after_the_longest():
    long = [list(range(100))]
    shown = made(long, long, [[True] * 100])
    fields = (shown.truth, shown.answer, shown.exact, shown.certain)
    assert [len(field) for field in fields] == [64] * 4
    assert made(long, long, longest=5).truth[-1] == " w4"


def test_excerpt_of_another_shape_is_refused():
    with pytest.raises(PluginError, match=r"tokens \(1, 2\); wanted \(1, 1\)"):
        made([[1]], [[1, 2]])
