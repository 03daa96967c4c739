"""What a run measured, in a table a protocol: attacks by defenses, and who did not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean

from tabulate import tabulate

from benchmark.metrics import METRICS
from benchmark.protocol import Protocol
from benchmark.records import Record

MOST = 3
"""Protocols whose tables a terminal holds; the board tells of more."""
_NAMED = 3  # attacks that a line names
_REASONS = 8  # why attacks did not fit, that a run names


def scores(protocols: Sequence[Protocol], found: Iterable[Record], width: int) -> Iterator[str]:
    """Yield lines on what was measured: the mean of the primary metric, controls last.

    Args:
        protocols: that ran.
        found: their records.
        width: of the terminal, in characters; defenses that find no room are counted.
    """
    if len(protocols) > MOST:
        return
    records = list(found)
    for protocol in protocols:
        yield from _of(protocol, [r for r in records if r.protocol == protocol.name], width)


def _of(protocol: Protocol, records: Sequence[Record], width: int) -> Iterator[str]:
    metric = METRICS[protocol.primary]
    unit = f" in {metric.unit}" if metric.unit else ""
    cells: dict[tuple[bool, str], dict[str, list[Record]]] = {}
    for record in records:
        if record.trial is not None:
            row = cells.setdefault((record.control, record.attack), {})
            row.setdefault(record.defense, []).append(record)
    found = dict.fromkeys(record.defense for record in records)
    defenses = sorted(found, key=lambda name: name != "none")  # first, which the others compare to
    fits = len(defenses)
    while cells:
        rows = [
            [f"{name} (control)" if control else name]
            + [_mean(row.get(defense, ()), metric.name) for defense in defenses[:fits]]
            for (control, name), row in sorted(cells.items())
        ]
        table = tabulate(rows, ["attack", *defenses[:fits]], disable_numparse=True)
        if fits == 1 or max(map(len, table.splitlines())) <= width:
            yield f"\n{protocol.name}: mean {metric.name}{unit}, {metric.better} reads more"
            yield table
            if fits < len(defenses):
                yield f"and {len(defenses) - fits} more defenses, which the board has"
            break
        fits -= 1
    yield from _without(records)


def _mean(records: Sequence[Record], metric: str) -> str:
    """Return a mean; a trial that failed counts with the prior's score, as on the board."""
    had = [score for record in records if (score := record.metrics.get(metric)) is not None]
    if not had:
        return "-"
    failed = sum(record.status in ("failed", "timed_out") for record in records)
    return f"{fmean(had):.4g}" + (f" ({failed} failed)" if failed else "")


def _without(records: Sequence[Record]) -> Iterator[str]:
    """Yield a line a reason why attacks did not fit."""
    why: dict[str, set[str]] = {}
    for record in records:
        if record.status == "not_applicable":
            why.setdefault(record.reason or "no reason given", set()).add(record.attack)
    most_first = sorted(why.items(), key=lambda item: -len(item[1]))
    for reason, attacks in most_first[:_REASONS]:
        named = sorted(attacks)
        more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
        yield f"n/a: {', '.join(named[:_NAMED])}{more}: {reason}"
    if len(why) > _REASONS:
        yield f"n/a: {len(why) - _REASONS} more reasons, which the board has"
