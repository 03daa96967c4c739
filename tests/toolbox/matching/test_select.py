"""Names chosen by a victim's anatomy."""

from itertools import pairwise

import pytest

from benchmark.errors import NotApplicable
from benchmark.toolbox.matching import select

APRIL = {"architecture": "april_b", "width": 16, "depth": 3}
TIMM = {"patch": 7, "depth": 3, "width": 24}
VICTIMS = [
    APRIL,
    {**APRIL, "architecture": "april_a"},
    {"architecture": "timm/vit_tiny_patch16_224", **TIMM},
    {"architecture": "timm/deit_tiny_distilled_patch16_224", **TIMM},
]


@pytest.fixture(scope="module", params=VICTIMS, ids=lambda settings: settings["architecture"])
def victim(make_victim, request):
    return make_victim(**request.param)


def test_positions_are_one_name(victim):
    assert select.of_positions(victim, victim.weights()) == {"pos_embed"}


def test_positions_that_were_not_sent_are_not_chosen(victim):
    sent = [name for name in victim.weights() if "pos_embed" not in name]
    assert select.of_positions(victim, sent) == frozenset()


def test_fixed_positions_are_not_chosen(make_victim):
    victim = make_victim(**APRIL, position="sincos_1d")
    assert select.of_positions(victim, victim.weights()) == frozenset()


def test_weights_by_order_fall_on_a_line(victim):
    names = list(victim.weights())
    found = select.by_order(names)
    assert list(found) == names
    assert found[names[0]] == 1
    assert found[names[-1]] == pytest.approx(1 / len(names))
    falls = [found[a] - found[b] for a, b in pairwise(names)]
    assert falls == pytest.approx([1 / len(names)] * len(falls))


def test_victim_whose_parts_are_not_known_is_not_applicable(make_victim):
    victim = make_victim("cifar/resnet20", channels=3, size=8)
    with pytest.raises(NotApplicable, match="parts"):
        select.of_positions(victim, victim.weights())
