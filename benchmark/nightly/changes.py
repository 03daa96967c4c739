"""What a night changed on the board: cells, ranks, failures, told with how sure a change is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmark.leaderboard.given import given
from benchmark.leaderboard.markdown import code, grid, mean, prose
from benchmark.leaderboard.section import NONE, labels, sections
from benchmark.records import read_table
from benchmark.registry import Registry
from benchmark.stats import CellSummary

Cell = tuple[str, str, str]
"""Protocol, defense and attack."""


@dataclass(frozen=True)
class Snapshot:
    """What the board says at one time.

    Attributes:
        cells: every cell that ran.
        primary: the metric of each protocol.
        ranks: of each attack in each protocol where nothing defends, of ten trials or more.
    """

    cells: Mapping[Cell, CellSummary]
    primary: Mapping[str, str]
    ranks: Mapping[tuple[str, str], int]

    @staticmethod
    def take(results: Path, protocols: Sequence[str]) -> Snapshot:
        """Read what the records of some protocols say now."""
        frame = read_table(results).frame
        frame = frame[frame["protocol"].isin(protocols)] if len(frame) else frame
        if frame.empty:
            return Snapshot({}, {}, {})
        found = sections(results, frame, given(labels(frame), Registry()), lambda _: {})
        cells = {
            (section.name, cell.defense, cell.attack): cell
            for section in found
            for cell in section.summaries
        }
        ranks = {
            (section.name, place.attack): place.rank
            for section in found
            for place in section.undefended.places
        }
        return Snapshot(cells, {section.name: section.primary for section in found}, ranks)


def report(before: Snapshot, after: Snapshot, drift: bool, when: str) -> str | None:
    """Return the page of a night; None where nothing changed.

    Args:
        before: what the board said.
        after: what it says.
        drift: whether a verification found another answer.
        when: date and time, as the title says them.
    """
    blocks = [
        _new(before, after),
        _moved(before, after),
        _ranks(before, after),
        _failures(before, after),
    ]
    told = [block for block in blocks if block]
    if drift:
        told.append(
            "## Drift\n\nA verification found an answer that is no longer the recorded one."
        )
    if not told:
        return None
    return "\n\n".join([f"# Changes of {when}", *told]) + "\n"


def _new(before: Snapshot, after: Snapshot) -> str:
    new = after.cells.keys() - before.cells.keys()
    counts: dict[str, int] = {}
    for protocol, _, _ in sorted(new):
        counts[protocol] = counts.get(protocol, 0) + 1
    if not counts:
        return ""
    rows = [[prose(protocol), str(count)] for protocol, count in counts.items()]
    return f"## New cells\n\n{grid(['Protocol', 'Cells'], rows)}"


def _moved(before: Snapshot, after: Snapshot) -> str:
    """Return the cells whose score moved, and whether intervals tell the two apart."""
    rows = []
    for key in sorted(before.cells.keys() & after.cells.keys()):
        metric = after.primary[key[0]]
        old, new = (side.cells[key].scores.get(metric) for side in (before, after))
        if old is None or new is None or (old.mean, old.n) == (new.mean, new.n):
            continue
        ends = (old.low, old.high, new.low, new.high)
        apart = None not in ends and (old.high < new.low or new.high < old.low)  # type: ignore[operator]
        sure = "yes" if apart else "no" if None not in ends else "too few trials"
        rows.append([*map(code, key), mean(old), mean(new), f"{old.n} to {new.n}", sure])
    headers = ["Protocol", "Defense", "Attack", "Before", "Now", "Trials", "More than noise"]
    return f"## Scores that moved\n\n{grid(headers, rows, words=3)}" if rows else ""


def _ranks(before: Snapshot, after: Snapshot) -> str:
    rows = []
    for key in sorted(before.ranks.keys() & after.ranks.keys()):
        old, new = before.ranks[key], after.ranks[key]
        if old != new:
            rows.append([*map(code, key), str(old), str(new)])
    said = (
        "A rank is one more than the attacks that are told apart as better, by sign flips of "
        "paired differences with false discoveries held to 5 %: a rank that moved is more than "
        f"noise by that measure. Where `{NONE}` defends."
    )
    headers = ["Protocol", "Attack", "Rank before", "Now"]
    return f"## Ranks that moved\n\n{said}\n\n{grid(headers, rows, words=2)}" if rows else ""


def _failures(before: Snapshot, after: Snapshot) -> str:
    rows = []
    for key in sorted(after.cells):
        old = before.cells.get(key)
        more = after.cells[key].failed - (0 if old is None else old.failed)
        if more > 0:
            rows.append([*map(code, key), str(more)])
    headers = ["Protocol", "Defense", "Attack", "Trials"]
    return f"## New failures\n\n{grid(headers, rows, words=3)}" if rows else ""
