"""What a verification found: a table, the attestations that follow from it, and the exit code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tabulate import tabulate

from benchmark.attestations import Attestation, Part, Standing, spell
from benchmark.records import Provenance
from benchmark.verify.rerun import Compared

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


def attestations(
    found: Iterable[Compared], standing: Standing, provenance: Provenance
) -> list[Attestation]:
    """Return what the comparisons vouch for: parts that moved and changed no answer anywhere."""
    seen: dict[tuple[Part, str], list[Compared]] = {}
    for one in found:
        if one.same or one.word == "differs":
            for part, was in one.stratum.moved.items():
                seen.setdefault((part, was), []).append(one)
    made = []
    for (part, was), compared in seen.items():
        now = standing.now(part)
        if now is None or not all(one.same for one in compared):
            continue
        made.append(
            Attestation(
                part=part[0],
                name=part[1],
                version=now.version,
                old=was,
                new=now.fingerprint,
                cells=len(compared),
                trials=sum(len(one.stratum.records) for one in compared),
                largest=dict(sorted(_largest(compared).items())),
                commit=provenance.commit,
                dirty=provenance.dirty,
            )
        )
    return made


def _words(of: Iterable[Compared]) -> str:
    counts = Counter(one.word for one in of)
    return ", ".join(f"{count} {word}" for word, count in counts.items())


def _gap(of: Iterable[Compared]) -> str:
    found = _largest(of).items()
    return ", ".join(f"{name} {gap:.1e}" for name, gap in found) or "no difference"


def _largest(of: Iterable[Compared]) -> dict[str, float]:
    """Return the largest difference of each metric that differed anywhere."""
    found: dict[str, float] = {}
    for one in of:
        for name, gap in one.largest.items():
            found[name] = max(gap, found.get(name, 0.0))
    return found


def _suspects(one: Compared) -> str:
    """Return what may have changed the answer, in words."""
    return (
        " or ".join(spell(one.stratum.moved))
        or "nothing: its source is as it was, so look at the libraries"
    )
