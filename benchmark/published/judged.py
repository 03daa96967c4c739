"""Published numbers beside ours, each with its verdict."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmark.published.ledger import Published
from benchmark.published.measured import Measured
from benchmark.published.verdicts import NotRun, Ours, Pair, Verdict, in_order, judge, means, order


@dataclass(frozen=True)
class Judged:
    """One published number, ours, and what they come to."""

    one: Published
    ours: Ours | NotRun
    verdict: Verdict

    @property
    def difference(self) -> tuple[float, str] | None:
        """Ours less the paper's, in its deviations or else its unit; None where that is nothing."""
        value = self.one.value
        if isinstance(self.ours, NotRun) or not self.one.comparable:
            return None
        apart = self.ours.mean - value.mean
        return (apart / value.std, "std") if value.std else (apart, self.one.column.unit)


@dataclass(frozen=True)
class Ranked:
    """A column's rows, the best first; those that are equal stand together."""

    published: tuple[tuple[str, ...], ...]
    ours: tuple[tuple[str, ...], ...]
    reproduced: bool


def judged(numbers: Iterable[Published], measured: Measured) -> list[Judged]:
    """Return numbers with their verdicts, in the order given."""
    found = [(one, measured.ours(one)) for one in numbers]
    columns: dict[tuple[str, str], list[tuple[Published, Pair]]] = {}
    for one, ours in found:
        column = columns.setdefault((one.table, one.column.name), [])
        if one.row.again is None:
            column.append((one, (one.value, ours)))
    made = []
    for one, ours in found:
        column = columns[one.table, one.column.name]
        mine = one.row.again or one.row.name
        others = [pair for other, pair in column if other.row.name != mine]
        verdict = judge(
            one.value,
            ours,
            better=one.column.better,
            tolerance=one.tolerance,
            ordered=in_order((one.value, ours), others),
            number=one.answer.compare == "number",
        )
        made.append(Judged(one, ours, verdict))
    return made


def counted(found: Iterable[Judged]) -> list[Judged]:
    """Return the published numbers without those told once more beside another attack."""
    return [each for each in found if each.one.row.again is None]


def ranked(column: Iterable[Judged]) -> Ranked | None:
    """Return the order of one column's rows; None where under two rows can be compared."""
    found = [
        (each.one, (each.one.value, each.ours)) for each in column if each.one.row.again is None
    ]
    agrees = order([pair for _, pair in found])
    if agrees is None:
        return None
    told = [(one, both) for one, pair in found if (both := means(pair)) is not None]
    down = told[0][0].column.better == "higher"
    by_paper = _together([(number, one.row.name) for one, (number, _) in told], down)
    by_ours = _together([(number, one.row.name) for one, (_, number) in told], down)
    return Ranked(by_paper, by_ours, agrees)


def _together(rows: list[tuple[float, str]], down: bool) -> tuple[tuple[str, ...], ...]:
    found: dict[float, list[str]] = {}
    for mean, name in rows:
        found.setdefault(mean, []).append(name)
    return tuple(tuple(found[mean]) for mean in sorted(found, reverse=down))
