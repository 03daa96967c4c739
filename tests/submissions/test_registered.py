"""Every submission that is registered keeps the contract."""

import pytest
import torch

from benchmark.conformance.examination import examine
from benchmark.conformance.fitting import VICTIMS, plain_round
from benchmark.federation import DefendedRound
from benchmark.registry import Registry

REGISTRY = Registry()
SUBMISSIONS = [
    submission
    for kind in ("attack", "defense")
    for submission in REGISTRY.all(kind)
    if not submission.outside
]
CPU = torch.device("cpu")


def label(submission):
    return f"{submission.manifest.kind} {submission.label}"


def by_name():
    """Yield all; the variants of one, which differ from the first in an argument, are slow."""
    names = set()
    for one in SUBMISSIONS:
        name = one.manifest.kind, one.manifest.name
        yield pytest.param(one, marks=pytest.mark.slow if name in names else ())
        names.add(name)


@pytest.mark.parametrize("submission", list(by_name()), ids=label)
def test_every_promise_is_kept(submission):
    rows = list(examine(submission, REGISTRY))
    assert len(rows) > 8
    assert [row for row in rows if row.answer == "fail"] == []


@pytest.mark.parametrize("submission", SUBMISSIONS, ids=label)
def test_repr_says_the_arguments(submission):
    said = repr(submission.build())
    assert all(f"{key}={value!r}" in said for key, value in submission.arguments)


def test_updates_of_small_victims_are_sent_as_they_are_undefended():
    (none,) = REGISTRY.find("defense", "none")
    for name in VICTIMS:
        plain = plain_round(name, CPU)
        assert DefendedRound(plain, none.build(), none.label).update(0) is plain.update(0)
