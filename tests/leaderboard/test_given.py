"""What a board knows of an attack; of one from outside without importing it."""

import sys

import pytest

from benchmark.leaderboard.given import Given, given
from benchmark.registry import Registry

SOURCE = """
from dataclasses import dataclass
from typing import ClassVar
from benchmark.api import Attack, Grant

raise SystemExit("imported")

@dataclass(frozen=True)
class Plugin(Attack):
    rate: float = 0.5
    {needs}

    def reconstruct(self, seen):
        return Grant.LABELS
"""


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        ("needs: ClassVar = frozenset({Grant.LENGTH, Grant.BATCH_SIZE})", ("batch_size", "length")),
        ("@property\n    def needs(self): return frozenset({Grant.LABELS})", ("labels",)),
        ("pass", ()),
    ],
)
def test_attack_from_outside_is_read_and_not_imported(plugin, needs, said):
    folder = plugin("theirs", source=SOURCE.format(needs=needs), title="Of theirs", paper="None")
    before = set(sys.modules)
    known = given(["theirs"], Registry([folder]))["theirs"]
    assert (known.title, known.needs, known.rate, known.own) == ("Of theirs", said, None, False)
    assert not [name for name in set(sys.modules) - before if name.startswith("outside_")]


@pytest.mark.parametrize("source", ["def", "(" * 100_000, "\0"])
def test_attack_whose_source_is_no_python_says_nothing(plugin, source):
    assert given(["theirs"], Registry([plugin("theirs", source=source)])) == {"theirs": Given()}


def test_attack_of_the_repository_is_asked():
    found = given(["position_closed_form", "dlg", "nobody"], Registry())
    assert found["position_closed_form"].own
    assert found["dlg"].needs == ("batch_size",)
    assert found["dlg"].rate
    assert found["nobody"] == Given()
