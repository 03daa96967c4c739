"""What a verification found, as a table, and its exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from benchmark.attestations import spell
from benchmark.verify.rerun import Compared, largest_gaps

DIFFERS = 3
"""Exit code where an answer changed, nobody knows whether one did, or a record is outdated."""


def table(found: Sequence[Compared]) -> str:
    """Return a line an attack in a protocol, and a line each for what differs."""
    groups: dict[tuple[str, str], list[Compared]] = {}
    for one in found:
        cell = one.stratum.cell
        groups.setdefault((cell.protocol.name, cell.attack.label), []).append(one)
    rows = [
        (protocol, attack, _words(of), sum(len(c.stratum.records) for c in of if c.same), _gap(of))
        for (protocol, attack), of in groups.items()
    ]
    heads = ["protocol", "attack", "cells", "trials", "largest difference"]
    lines = [tabulate(rows, heads)]
    for one in found:
        if one.word == "differs":
            cell = one.stratum.cell
            lines.append(f"differs: {cell}: {one.what}")
            lines.append(f"    raise the version of {_suspects(one)}, or mend it")
    for reason in dict.fromkeys(one.what for one in found if one.word == "unavailable"):
        lines.append(f"unavailable: {reason}")
    return "\n".join(lines)


def _words(of: Iterable[Compared]) -> str:
    counts = Counter(one.word for one in of)
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _gap(of: Iterable[Compared]) -> str:
    found = largest_gaps(of).items()
    return ", ".join(f"{name} {gap:.1e}" for name, gap in found) or "no difference"


def _suspects(one: Compared) -> str:
    """Return what may have changed the answer, in words."""
    return (
        " or ".join(spell(one.stratum.moved))
        or "nothing: its source is as it was, so look at the libraries"
    )
