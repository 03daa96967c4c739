"""reproduction.md: a summary by paper, then a section a published table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path

from benchmark.leaderboard.markdown import DASH, NBSP, Links, code, grid, lines, prose
from benchmark.published import NotRun, Published, SuiteName
from benchmark.published.judged import Judged, counted, ranked
from benchmark.records.files import file_of
from benchmark.reproduction.numbers import difference, ours, trials
from benchmark.reproduction.terminal import KINDS

OPENING = """\
# Published numbers beside ours

What {papers} papers report, {numbers} numbers, and what `gradleak reproduce --suite {suite}` \
makes of each. `gradleak reproduce NAME` runs what a table lacks, `--plan` says what that would \
take, and this page is written anew from the records and the ledger, `benchmark/published/`."""
RULES = """\
**Reproduced**: our mean lies within the tolerance stated with the table, or on the side of a \
bound that the paper says. **Better**: beyond it on the attacker's side (of accuracies, on the \
side that the paper calls better). **Order reproduced**: neither, but the row stands to every \
other measured row of its column as in the paper. **Not reproduced**: none of these. **Under \
budget**: none, by a search that spent fewer gradients than the paper's, with the share. **Too few \
trials**: under ten. A verdict is computed anew each time, and can get worse. Orders name the best \
row first; a row that is told again, beside another attack, stands in none and is not counted \
above. Differences are in the paper's standard deviations (std) where it prints one, else in \
its unit."""
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def page(found: Sequence[Judged], suite: SuiteName, results: Path, output: Path) -> str:
    """Return the page.

    Args:
        found: every published number, in the order of papers, tables, rows and columns.
        suite: which answers are judged.
        results: folder of the records, which numbers link to.
        output: the page's file.
    """
    blocks = [_opening(found, suite), _summary(found), RULES]
    links = Links(output.parent)
    for name, own in _by(found, lambda each: each.one.paper.name):
        paper = own[0].one.paper
        blocks.append(f"## {prose(name)}\n\n{prose(paper.title)}. {prose(paper.source)}.")
        for _, table in _by(own, lambda each: each.one.table):
            blocks += _section(table, links, results)
    return "\n\n".join([*filter(None, blocks), links.definitions()]).rstrip() + "\n"


def _opening(found: Sequence[Judged], suite: SuiteName) -> str:
    papers = len({each.one.paper.name for each in found})
    return OPENING.format(papers=papers, numbers=len(counted(found)), suite=suite)


def _by(found: Iterable[Judged], key: Callable[[Judged], str]) -> list[tuple[str, list[Judged]]]:
    return [(name, list(own)) for name, own in groupby(found, key)]


def _summary(found: Sequence[Judged]) -> str:
    rows = []
    for name, own in _by(found, lambda each: each.one.paper.name):
        rows.append([f"[{prose(name)}](#{name})", *_counts(own)])
    rows.append(["all", *_counts(found)])
    return grid(["Paper", "Numbers", *(kind.capitalize() for kind in KINDS)], rows)


def _counts(found: Sequence[Judged]) -> list[str]:
    own = counted(found)
    counts = Counter(each.verdict.kind for each in own)
    return [str(len(own)), *(str(counts[kind] or DASH) for kind in KINDS)]


def _section(own: Sequence[Judged], links: Links, results: Path) -> list[str]:
    """Return a table's heading, settings, numbers that were measured, and those that were not."""
    first = own[0].one
    ran = [each for each in own if not isinstance(each.ours, NotRun)]
    left = [each for each in own if isinstance(each.ours, NotRun)]
    heading = (
        f"### {first.table}\n\n**{prose(first.setting.title)}** ({prose(first.setting.place)})"
    )
    blocks = [heading, _settings(own, ran)]
    if ran:
        blocks.append(_measured(ran, links, results))
        blocks.append(_orders(ran))
    if left:
        blocks += _unmeasured(left)
    return blocks


def _settings(own: Sequence[Judged], ran: Sequence[Judged]) -> str:
    table = own[0].one.setting
    told = [f"- Setting: {prose(table.setting)}"]
    if table.left_open:
        told.append(f"- Left open, and what we assume: {' '.join(map(prose, table.left_open))}")
    differs = dict.fromkeys(said for each in ran for said in each.one.answer.differs)
    if differs:
        told.append(f"- Ours is another setting: {'; '.join(map(prose, differs))}.")
    if stated := _tolerances(each.one for each in ran if each.one.comparable):
        told.append(f"- Reproduced: {stated}.")
    told += [f"- {prose(note)}" for note in table.notes]
    return "\n".join(told)


def _tolerances(numbers: Iterable[Published]) -> str:
    """Return within what numbers are called the same: of each column, where they differ."""
    columns: dict[str, dict[str, None]] = {}
    for one in numbers:
        columns.setdefault(one.tolerance.told(one.column.unit), {})[one.column.name] = None
    if len(columns) < 2:
        return "".join(columns)
    return "; ".join(f"{prose(', '.join(names))} {told}" for told, names in columns.items())


def _measured(ran: Sequence[Judged], links: Links, results: Path) -> str:
    rows, above = [], ("", "")
    for each in ran:
        one, better = each.one, "↑" if each.one.column.better == "higher" else "↓"
        unit = f", {one.column.unit}" if one.column.unit else ""
        same = (one.row.name, one.attack) == above  # said once
        above = one.row.name, one.attack
        rows.append(
            [
                "" if same else prose(one.row.name),
                f"{prose(one.column.name + unit)}{NBSP}{better}",
                "" if same else lines(one.attack) if one.attack else DASH,
                prose(one.value.text).replace(" ± ", f"{NBSP}±{NBSP}"),
                _linked(each, links, results),
                difference(each),
                trials(each),
                _verdict(each),
            ]
        )
    headers = ["Row", "Column", "Our attack", "Published", "Ours", "Difference", "n", "Verdict"]
    return grid(headers, rows, words=3)


def _verdict(each: Judged) -> str:
    detail = f": {prose(each.verdict.detail)}" if each.verdict.detail else ""
    return f"{each.verdict.kind}{detail}"


def _linked(each: Judged, links: Links, results: Path) -> str:
    """Return our number as a link to the records that it is made of."""
    answer = each.one.answer
    if answer.measure != "records":
        return ours(each)
    file = file_of(results, answer.protocol, each.one.attack)
    return links.to(ours(each), file) if file.is_file() else ours(each)


def _orders(ran: Sequence[Judged]) -> str:
    """Return a line for each column whose rows can be compared."""
    names, letters = dict.fromkeys(each.one.column.name for each in ran), _lettered(ran)
    told = []
    for name in names:
        found = ranked(each for each in ran if each.one.column.name == name)
        if found is not None:
            word = "reproduced" if found.reproduced else "not reproduced"
            other = "" if found.reproduced else f"; ours {_rows(found.ours, letters)}"
            published = _rows(found.published, letters)
            told.append(f"- Order of {prose(name)}, **{word}**: {published}{other}.")
    return "\n".join(told)


def _lettered(ran: Sequence[Judged]) -> bool:
    """Tell whether every row has a letter before its name, as in `A: DeiT`."""
    return all(each.one.row.name[1:3] == ": " for each in ran)


def _rows(ordered: Iterable[Iterable[str]], letters: bool) -> str:
    def told(name: str) -> str:
        return name[0] if letters else prose(name)

    return ", ".join(" = ".join(map(told, equal)) for equal in ordered)


def _unmeasured(left: Sequence[Judged]) -> list[str]:
    """Return published numbers alone, with the letter of why, and the reasons beneath."""
    reasons: dict[tuple[str, str | None], str] = {}
    for each in left:
        reasons.setdefault((each.verdict.detail, _command(each)), _LETTERS[len(reasons)])
    there = {each.one.column.name for each in left}
    columns = [each.name for each in left[0].one.setting.columns if each.name in there]
    rows = []
    for name, own in _by(left, lambda each: each.one.row.name):
        values = {each.one.column.name: prose(each.one.value.text) for each in own}
        why = dict.fromkeys(reasons[each.verdict.detail, _command(each)] for each in own)
        numbers = [values.get(column, DASH) for column in columns]
        rows.append([prose(name), *numbers, f"not{NBSP}run{NBSP}({', '.join(why)})"])
    told = [
        f"- {letter}: {prose(reason)}" + (f"; to run: {_as_code(command)}" if command else "") + "."
        for (reason, command), letter in reasons.items()
    ]
    return [grid(["Published", *map(prose, columns), "Verdict"], rows), "\n".join(told)]


def _as_code(command: str) -> str:
    return code(command) if command.startswith("gradleak ") else prose(command)


def _command(each: Judged) -> str | None:
    """Return what would run a number; None where no command can."""
    answer = each.one.answer
    if answer.needs is not None:
        return answer.command
    due = isinstance(each.ours, NotRun) and each.ours.due
    return f"gradleak reproduce {each.one.table}" if due else None
