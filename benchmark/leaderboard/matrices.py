"""One matrix a suite: its defenses by protocol in the worst case, and its attacks undefended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmark.leaderboard.groups import TRACKS, Group, Scored, variant
from benchmark.leaderboard.markdown import DASH, NBSP, Links, code, grid, percent, short, stacked
from benchmark.leaderboard.page import MARKS
from benchmark.leaderboard.section import NONE, Section
from benchmark.protocol import protocols_of, suite_files
from benchmark.stats import LEAST_TRIALS, PRIOR

WIDEST = 7
"""Columns beside one another."""


def suites(sections: Iterable[Section]) -> dict[str, list[Section]]:
    """Return the protocols with records of each suite that is part of no other; of none under "".

    A protocol of several suites stands in the smallest; suites stand by their cells, most first.
    """
    members = {name: protocols_of(name) for name in suite_files()}
    outer = [
        name
        for name, own in members.items()
        if not any(set(own) < set(other) for other in members.values())
    ]
    outer.sort(key=lambda name: (len(members[name]), name))
    found: dict[str, list[Section]] = {}
    for section in sections:
        if section.summaries:
            suite = next((name for name in outer if section.name in members[name]), "")
            found.setdefault(suite, []).append(section)
    cells = {name: sum(len(s.summaries) for s in own) for name, own in found.items()}
    return {name: found[name] for name in sorted(found, key=lambda n: (not n, -cells[n], n))}


def matrices(group: Group, links: Links, pages: Path) -> list[str]:
    """Return the tables of the protocols of one suite and track, each with what it shows.

    Args:
        group: the protocols.
        links: of the page the tables stand on.
        pages: folder of the protocols' pages.
    """
    blocks = []
    if names := sorted({name for section in group.sections for name in section.worst} - {NONE}):
        blocks += [
            "Worst case under each defense:",
            _laid_out(group, _defenses(group, [NONE, *names], links), "Defense", links, pages),
        ]
    if group.methods:
        blocks += [
            "Undefended, the strongest variant of each attack:",
            _laid_out(group, _attacks(group, links), "Attack", links, pages),
        ]
    return blocks


def _defenses(group: Group, names: Sequence[str], links: Links) -> dict[str, list[str]]:
    rows = {code(name): [_worst(s, name, links) for s in group.sections] for name in names}
    return rows | {"prior alone": [_prior(section, links) for section in group.sections]}


def _worst(section: Section, defense: str, links: Links) -> str:
    cell = section.worst.get(defense)
    if cell is None:
        return DASH
    scored = Scored(section, cell, cell.scores[section.primary])
    return f"{MARKS[section.outcome(defense)]}{NBSP}{scored.linked(links)}"


def _attacks(group: Group, links: Links) -> dict[str, list[str]]:
    rows = {code(m): [_undefended(s, m, links) for s in group.sections] for m in group.methods}
    return rows | {"prior alone": [_prior(section, links) for section in group.sections]}


def _undefended(section: Section, method: str, links: Links) -> str:
    """Return a method's best score, with the share of its budget, bold where none sees more."""
    one = variant(section, method, section.primary)
    if one is None:
        return DASH
    text = one.linked(links)
    if one.cell is section.worst.get(NONE):
        text = f"**{text}**"
    if one.score.n < min(_trials(section), LEAST_TRIALS):
        text += f"{NBSP}({one.score.n})"
    label = one.cell.attack
    if section.reduced(label):
        text += f"<br>{percent((section.spent(label) or 0) / (section.in_paper(label) or 1))}"
    return text


def _prior(section: Section, links: Links) -> str:
    score = section.score(NONE, PRIOR)
    return DASH if score is None else links.to(short(score), section.file(PRIOR))


def _trials(section: Section) -> int:
    """Return the most trials of a cell."""
    return max(cell.n for cell in section.summaries)


def _laid_out(
    group: Group, rows: dict[str, list[str]], what: str, links: Links, pages: Path
) -> str:
    """Return the table with its protocols where there is room for them: above, or at the side."""
    if len(group.sections) > max(WIDEST, len(rows)):
        sides = [_side(group, section, links, pages) for section in group.sections]
        cells = [list(row) for row in zip(sides, *rows.values(), strict=True)]
        heads = ["Protocol, trials", *(_head(name) for name in rows)]
        return grid(heads, cells)
    tables = []
    for start in range(0, len(group.sections), WIDEST):
        part = slice(start, start + WIDEST)
        heads = [_top(group, section, links, pages) for section in group.sections[part]]
        cells = [[name, *row[part]] for name, row in rows.items()]
        tables.append(grid([what, *heads], [row for row in cells if set(row[1:]) != {DASH}]))
    return "\n\n".join(tables)


def _head(name: str) -> str:
    return stacked(name.strip("`")) if name.startswith("`") else name


def _unit(group: Group, section: Section) -> str:
    return "" if section.primary == group.metric else f", {section.unit}"


def _side(group: Group, section: Section, links: Links, pages: Path) -> str:
    page = links.url(pages / f"{section.name}.md")
    return f"[{code(section.name)}]({page}), {_trials(section)}{_unit(group, section)}"


def _top(group: Group, section: Section, links: Links, pages: Path) -> str:
    page = links.url(pages / f"{section.name}.md")
    return f"[{stacked(section.name)}]({page})<br>n{NBSP}={NBSP}{_trials(section)}{_unit(group, section)}"
