"""What `gradleak reproduce` prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import get_args

from rich.table import Table

from benchmark.published.judged import Judged, counted
from benchmark.published.verdicts import Kind
from benchmark.reproduction.numbers import difference, ours, trials

KINDS: tuple[Kind, ...] = get_args(Kind)


def told(found: Sequence[Judged], *, detailed: bool) -> Iterator[Table]:
    """Yield a table a published table, or one of counts alone."""
    tables: dict[str, list[Judged]] = {}
    for each in found:
        tables.setdefault(each.one.table, []).append(each)
    if not detailed:
        yield _counts(tables)
        return
    for name, own in tables.items():
        yield _numbers(name, own)


def _counts(tables: dict[str, list[Judged]]) -> Table:
    made = Table("table", *KINDS, box=None, header_style="bold")
    for name, own in tables.items():
        counts = Counter(each.verdict.kind for each in counted(own))
        made.add_row(name, *(str(counts[kind] or "") for kind in KINDS))
    return made


def _numbers(name: str, own: Sequence[Judged]) -> Table:
    first = own[0].one
    title = f"{name}: {first.setting.title}"
    headers = ("row", "column", "published", "ours", "difference", "n", "verdict")
    made = Table(*headers, title=title, title_justify="left", box=None, header_style="bold")
    for each in own:
        one = each.one
        words = (one.row.name, one.column.name, one.value.text, ours(each))
        made.add_row(*words, difference(each), trials(each), str(each.verdict))
    return made
