"""Protocols taken together: by track and threat model, by victim; and how each attack did there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmark.leaderboard.markdown import Links, interval, short
from benchmark.leaderboard.section import NONE, Section
from benchmark.metrics import METRICS
from benchmark.stats import PRIOR, CellSummary, Estimate


TRACKS = {"vision": "Images", "text": "Text"}
"""Tracks in the order in which they are told, as a heading names them."""


@dataclass(eq=False)
class Group:
    """Protocols of one track, told in one metric.

    Attributes:
        sections: theirs; each has records.
        metric: the primary metric of most protocols of the track.
    """

    sections: Sequence[Section]
    metric: str

    @property
    def track(self) -> str:
        """The track, as a heading names it."""
        track = self.sections[0].track
        return TRACKS.get(track, track.capitalize())

    @property
    def place(self) -> int:
        """A key that sorts groups by track."""
        return [*TRACKS.values(), self.track].index(self.track)

    @property
    def higher(self) -> bool:
        """Whether a higher number is the better attack."""
        return METRICS[self.metric].better == "higher"

    @property
    def unit(self) -> str:
        """Name and unit of the metric."""
        unit = METRICS[self.metric].unit
        return f"{self.metric} ({unit})" if unit else self.metric

    @cached_property
    def methods(self) -> list[str]:
        """Every method that scored undefended, from the one that is first most often."""
        names = {
            cell.attack.split(",")[0]
            for section in self.sections
            for cell in section.summaries
            if not cell.control and cell.defense == NONE and cell.scores
        }
        return sorted(names, key=lambda name: (*map(lambda n: -n, self.firsts(name)), name))

    def firsts(self, method: str) -> tuple[int, int]:
        """Return in how many protocols a method is first undefended, and in how many it ranks."""
        ranks = [rank for section in self.sections if (rank := _rank(section, method))]
        return ranks.count(1), len(ranks)

    def spread(self, method: str) -> list[Scored]:
        """Return a method's scores undefended, a protocol each, from the least that it sees."""
        found = [variant(section, method, self.metric) for section in self.sections]
        return self.ordered(one for one in found if one is not None)

    def worst_cases(self, defense: str) -> list[Scored]:
        """Return a defense's worst cases, a protocol each, from the one that leaks least."""
        found = []
        for section in self.sections:
            cell = section.worst.get(defense)
            if cell is not None and self.metric in cell.scores:
                found.append(Scored(section, cell, cell.scores[self.metric]))
        return self.ordered(found)

    def alone(self) -> list[Scored]:
        """Return what the prior alone scores, a protocol each, from the least."""
        found = []
        for section in self.sections:
            cell = section.cells.get((NONE, PRIOR))
            if cell is not None and self.metric in cell.scores:
                found.append(Scored(section, cell, cell.scores[self.metric]))
        return self.ordered(found)

    def ordered(self, found: Iterable[Scored]) -> list[Scored]:
        """Return scores from the one that tells the attacker least."""
        sign = 1 if self.higher else -1
        return sorted(found, key=lambda one: (sign * one.score.mean, one.section.name))


@dataclass(frozen=True)
class Scored:
    """A score and where it stands."""

    section: Section
    cell: CellSummary
    score: Estimate

    def linked(self, links: Links) -> str:
        """Return the number as a link to its records."""
        return links.to(short(self.score), self.section.file(self.cell.attack))

    def bracketed(self, links: Links) -> str:
        """Return the number and its interval as a link to its records."""
        text = f"{short(self.score)} {interval(self.score)}".strip()
        return links.to(text, self.section.file(self.cell.attack))


def _rank(section: Section, method: str) -> int | None:
    """Return the best rank of a method's variants undefended."""
    ranks = [p.rank for p in section.undefended.places if p.attack.split(",")[0] == method]
    return min(ranks, default=None)


def variant(section: Section, method: str, metric: str) -> Scored | None:
    """Return the score of the variant of a method that sees most undefended."""
    cells = [
        cell
        for cell in section.summaries
        if cell.defense == NONE and cell.attack.split(",")[0] == method and metric in cell.scores
    ]
    sign = 1 if METRICS[metric].better == "higher" else -1
    best = max(cells, key=lambda cell: sign * cell.scores[metric].mean, default=None)
    return None if best is None else Scored(section, best, best.scores[metric])


def groups(
    sections: Iterable[Section], key: Callable[[Section], Hashable]
) -> dict[Hashable, Group]:
    """Return the protocols that have records, together where a key is equal.

    The key has to tell tracks apart: each group is told in the metric of its track.
    """
    told = [section for section in sections if section.summaries]
    tracks: dict[str, Counter[str]] = {}
    for section in told:
        tracks.setdefault(section.track, Counter())[section.primary] += 1
    metric = {track: max(sorted(c), key=lambda name: c[name]) for track, c in tracks.items()}
    found: dict[Hashable, list[Section]] = {}
    for section in told:
        found.setdefault(key(section), []).append(section)
    return {each: Group(own, metric[own[0].track]) for each, own in found.items()}
