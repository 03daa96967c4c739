"""A run in parts: which of its groups each of several machines works on.

The split is the same wherever it is made from the same records: groups in the order of their
seconds, each to the part that has least to do. It is kept beside the records, so that a part that
is begun again, and has recorded seconds of its own since, is the same part.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.errors import BenchmarkError
from benchmark.records import replace
from benchmark.running.cost import START, seconds_of
from benchmark.running.plan import Group


@dataclass(frozen=True)
class Shard:
    """Part `number`, from 1 on, of `parts`."""

    number: int
    parts: int

    @staticmethod
    def read(text: str) -> Shard:
        """Read `2/3`.

        Raises:
            BenchmarkError: it is no part of a whole.
        """
        number, _, parts = text.partition("/")
        if number.isdecimal() and parts.isdecimal() and 1 <= int(number) <= int(parts):
            return Shard(int(number), int(parts))
        raise BenchmarkError(f"--shard {text!r}: wanted a part such as 2/3, from 1 on")

    def __str__(self) -> str:
        return f"{self.number}/{self.parts}"

    def of(self, groups: Sequence[Group], results: Path, cores: int) -> list[Group]:
        """Return this part's groups, in the order of a run.

        Args:
            groups: of the whole run.
            results: whose records tell what groups take, and where the split is kept.
            cores: that a search uses.
        """
        places = split(groups, self.parts, results, cores)
        return [g for g, place in zip(groups, places, strict=True) if place == self.number - 1]


def split(groups: Sequence[Group], parts: int, results: Path, cores: int) -> list[int]:
    """Return the part that each group belongs to, from 0 on; the same as when first asked."""
    names = [f"{g} x {len(g.attacks)} x {g.seeds} x {len(g.trials)}" for g in groups]
    digest = hashlib.sha256(json.dumps([parts, *names]).encode()).hexdigest()[:16]
    path = results / f".split-{digest}.json"
    if path.is_file():
        return [int(place) for place in json.loads(path.read_bytes())]
    taken = seconds_of(groups, results, cores)
    cells = [len(g.attacks) * len(g.seeds) for g in groups]
    each = [one + START * count for one, count in zip(taken, cells, strict=True)]
    loads, places = [0.0] * parts, [0] * len(groups)
    for at in sorted(range(len(groups)), key=lambda i: (-each[i], names[i])):
        least = loads.index(min(loads))
        places[at] = least
        loads[least] += each[at]
    replace(path, json.dumps(places))
    return places
