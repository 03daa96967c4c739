"""Protocols taken together and told in one metric: by threat model, by victim, by suite."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from benchmark.leaderboard.markdown import DASH, NBSP, Links, interval, ranged, short
from benchmark.leaderboard.section import NONE, Section
from benchmark.metrics import METRICS
from benchmark.stats import LEAST_TRIALS, PRIOR, CellSummary, Estimate

_LEADS = "psnr"
"""Of images: where SSIM reads 1.000, it tells 70 dB from 157."""
BELOW = "nothing beyond the prior"
"""What stands where the strongest attack tells no more than the prior alone."""
TRACKS = {"vision": "Images", "text": "Text"}
"""Tracks in the order in which they are told, as a heading names them."""


@dataclass(frozen=True)
class Scored:
    """A score and where it stands."""

    section: Section
    cell: CellSummary
    score: Estimate

    def linked(self, links: Links, *, usual: int = 0) -> str:
        """Return the number as a link to its records, with its trials where they are few.

        Args:
            links: of the page.
            usual: trials that need not be told.
        """
        return self._told(short(self.score), links, usual=usual)

    def told(self, links: Links, *, bracketed: bool = False) -> str:
        """Return the number, or in words that it is no more than the prior's, as a link.

        Args:
            links: of the page.
            bracketed: with its interval.
        """
        if self.cell.below_prior:
            return self._told(BELOW, links, usual=0)
        return self.bracketed(links) if bracketed else self.linked(links)

    def bracketed(self, links: Links) -> str:
        """Return the number and its interval as a link to its records."""
        text = f"{short(self.score)} {interval(self.score)}".strip().replace(" ", NBSP)
        return self._told(text, links, usual=0)

    def _told(self, text: str, links: Links, *, usual: int) -> str:
        few = self.score.n < LEAST_TRIALS and self.score.n != usual
        linked = links.to(text, self.section.file(self.cell.attack))
        return linked + (f"{NBSP}({self.score.n})" if few else "")


@dataclass(eq=False)
class ThreatGroup:
    """Protocols of one track.

    Attributes:
        sections: theirs; each has records.
        metric: in which all of them are told.
    """

    sections: Sequence[Section]
    metric: str

    @property
    def track(self) -> str:
        """The track, as a heading names it."""
        track = self.sections[0].track
        return TRACKS.get(track, track.capitalize())

    @property
    def place(self) -> tuple[int, int]:
        """A key that sorts groups by track, those of most protocols first."""
        return [*TRACKS.values(), self.track].index(self.track), -len(self.sections)

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
    def contested(self) -> ThreatGroup:
        """Its protocols in which several methods are ranked; all of them where there is none.

        A study may run one alone, which is then first, and says nothing of the others.
        """
        own = [
            section
            for section in self.sections
            if len({method(place.attack) for place in section.undefended.places}) > 1
        ]
        return ThreatGroup(own or self.sections, self.metric)

    @cached_property
    def methods(self) -> list[str]:
        """Every method that scored undefended, from the one that is first most often."""
        names = {
            method(cell.attack)
            for section in self.sections
            for cell in section.summaries
            if not cell.control and cell.defense == NONE and cell.scores
            if cell.attack not in section.claims
        }

        def key(name: str) -> tuple[int, bool, float, str]:
            ranks = self.ranks(name)
            return -self.firsts(name), not ranks, sum(ranks) / max(1, len(ranks)), name

        return sorted(names, key=key)

    def ranks(self, name: str) -> list[int]:
        """Return a method's rank undefended in each protocol where it has one."""
        return [
            min(own)
            for section in self.sections
            if (own := [p.rank for p in section.undefended.places if method(p.attack) == name])
        ]

    def first_in(self, name: str) -> str:
        """Return in how many protocols a method is first undefended, of those where it ranks."""
        return f"{self.firsts(name)} of {len(self.ranks(name))}"

    def firsts(self, name: str) -> int:
        """Return where a method is first, and tells more than the prior alone."""
        return sum(
            any(
                place.rank == 1 and not section.cells[NONE, place.attack].below_prior
                for place in section.undefended.places
                if method(place.attack) == name
            )
            for section in self.sections
        )

    def undefended(self, section: Section, name: str) -> Scored | None:
        """Return the score of a method's variant that sees most, one of ten trials first.

        Of a search whose tuned rate ran, its other rates do not count.
        """
        found = [
            Scored(section, cell, cell.scores[self.metric])
            for cell in section.summaries
            if cell.defense == NONE and method(cell.attack) == name and self.metric in cell.scores
            if not section.superseded(cell.attack) and cell.attack not in section.claims
        ]
        enough = [one for one in found if one.score.n >= LEAST_TRIALS]
        return self.ordered(enough or found)[-1] if found else None

    def across(self, name: str) -> list[Scored]:
        """Return a method's scores undefended, a protocol each, from the least that it sees."""
        found = (self.undefended(section, name) for section in self.sections)
        return self.ordered(one for one in found if one is not None)

    def prior(self) -> list[Scored]:
        """Return what the prior alone scores, a protocol each, from the least."""
        return self.across(PRIOR)

    def worst_case(self, section: Section, defense: str) -> Scored | None:
        """Return a defense's worst case in one protocol."""
        cell = section.worst.get(defense)
        if cell is None or self.metric not in cell.scores:
            return None
        return Scored(section, cell, cell.scores[self.metric])

    def worst_cases(self, defense: str) -> list[Scored]:
        """Return a defense's worst cases, a protocol each, from the one that leaks least."""
        found = (self.worst_case(section, defense) for section in self.sections)
        return self.ordered(one for one in found if one is not None)

    @cached_property
    def defenses(self) -> list[str]:
        """Every defense that an attack ran against, `none` first."""
        names = {name for section in self.sections for name in section.worst}
        return sorted(names, key=lambda name: (name != NONE, name))

    def span(self, scored: Sequence[Scored], links: Links) -> str:
        """Return the first and the last of some scores, or one where they read the same."""
        if not scored:
            return DASH
        first, last = scored[0], scored[-1]
        alike = short(first.score) == short(last.score)
        return ranged([one.linked(links) for one in ([last] if alike else [first, last])])

    def ordered(self, found: Iterable[Scored]) -> list[Scored]:
        """Return scores from the one that tells the attacker least."""
        sign = 1 if self.higher else -1
        return sorted(found, key=lambda one: (sign * one.score.mean, one.section.name))


def method(attack: str) -> str:
    """Return what the variants of an attack share: its name without arguments."""
    return attack.partition(",")[0]


def groups(sections: Iterable[Section], key: Callable[[Section], Hashable]) -> list[ThreatGroup]:
    """Return the protocols that have records, together where key and metric are equal.

    Metrics of images say much the same of one image, so those protocols are told in the one that
    tells what is all but exact apart; of tokens each asks another question, and primary metrics
    stay apart.
    """
    found: dict[tuple[Hashable, str], list[Section]] = {}
    for section in sections:
        if section.summaries:
            images = METRICS[section.primary].of == "images" and _LEADS in section.frozen.metrics
            metric = _LEADS if images else section.primary
            found.setdefault((key(section), metric), []).append(section)
    return sorted(
        (ThreatGroup(own, metric) for (_, metric), own in found.items()),
        key=lambda group: group.place,
    )
