"""One matrix a suite: its defenses by protocol in the worst case, and its attacks undefended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from benchmark.leaderboard.groups import Scored, ThreatGroup
from benchmark.leaderboard.markdown import (
    DASH,
    NBSP,
    Links,
    breakable,
    code,
    grid,
    percent,
)
from benchmark.leaderboard.page import MARKS
from benchmark.leaderboard.section import NONE, Section
from benchmark.protocol import Suite, read_suites
from benchmark.stats import PRIOR

WIDEST = 7
"""Protocols beside one another; more stand below one another."""


def suites(sections: Iterable[Section]) -> dict[str, list[Section]]:
    """Return the protocols with records of each suite that is part of no other; of none under "".

    A protocol of several suites stands in the smallest; suites stand by their cells, most first.
    """
    known = read_suites()
    members = {name: _members(suite, known) for name, suite in known.items()}
    outer = [
        name for name, own in members.items() if not any(own < other for other in members.values())
    ]
    outer.sort(key=lambda name: (len(members[name]), name))
    found: dict[str, list[Section]] = {}
    for section in sections:
        if section.summaries:
            suite = next((name for name in outer if section.name in members[name]), "")
            found.setdefault(suite, []).append(section)
    cells = {name: sum(len(s.summaries) for s in own) for name, own in found.items()}
    return {name: found[name] for name in sorted(found, key=lambda n: (not n, -cells[n], n))}


def _members(suite: Suite, known: dict[str, Suite]) -> set[str]:
    """Return the names of a suite's protocols, those of its suites too."""
    inner = (_members(known[name], known) for name in suite.suites)
    return set(suite.protocols).union(*inner)


def matrices(group: ThreatGroup, links: Links, pages: Path) -> list[str]:
    """Return the tables of the protocols of one suite and metric, each with what it shows.

    Args:
        group: the protocols.
        links: of the page the tables stand on.
        pages: folder of the protocols' pages.
    """
    sheet = Matrix(group, links, pages, len(group.sections) > WIDEST)
    blocks = []
    if group.defenses[1:]:
        rows = {name: [sheet.worst(s, name) for s in group.sections] for name in group.defenses}
        blocks += ["Worst case under each defense:", sheet.table("Defense", rows)]
    if group.methods:
        rows = {name: [sheet.seen(s, name) for s in group.sections] for name in group.methods}
        rows[PRIOR] = [sheet.seen(section, PRIOR) for section in group.sections]
        blocks += ["Undefended, the strongest variant of each attack:", sheet.table("Attack", rows)]
    return blocks


@dataclass(frozen=True)
class Matrix:
    """Where the matrices of a group are written.

    Attributes:
        many: whether protocols stand below one another.
    """

    group: ThreatGroup
    links: Links
    pages: Path
    many: bool

    def worst(self, section: Section, defense: str) -> str:
        """Return a defense's worst case in a protocol, and whether it holds there."""
        one = self.group.worst_case(section, defense)
        return DASH if one is None else f"{MARKS[section.outcome(defense)]}{NBSP}{self._told(one)}"

    def seen(self, section: Section, name: str) -> str:
        """Return a method's score, with the share of its budget; bold where none sees more."""
        one = self.group.undefended(section, name)
        if one is None:
            return DASH
        text, share = self._told(one), section.share(one.cell.attack)
        worst = self.group.worst_case(section, NONE)
        first = worst is not None and one.score.mean == worst.score.mean
        if first and not one.cell.control and not one.cell.below_prior:
            text = f"**{text}**"
        return text if share is None or share >= 1 else f"{text}, {percent(share)}"

    def table(self, what: str, rows: dict[str, list[str]]) -> str:
        """Return a table of named rows with a cell a protocol, on its side where there are many."""
        heads = [self._head(section) for section in self.group.sections]
        if self.many:
            turned = zip(heads, *rows.values(), strict=True)
            return grid(["Protocol", *map(breakable, rows)], [list(row) for row in turned])
        return grid([what, *heads], [[code(name), *row] for name, row in rows.items()])

    def _told(self, one: Scored) -> str:
        return one.linked(self.links, usual=_trials(one.section))

    def _head(self, section: Section) -> str:
        name = section.name if self.many else breakable(section.name)
        page = self.links.url(self.pages / f"{section.name}.md")
        return f"[{name}]({page}){' ' if self.many else '<br>'}({_trials(section)})"


def _trials(section: Section) -> int:
    """Return the most trials of a cell."""
    return max(cell.n for cell in section.summaries)
