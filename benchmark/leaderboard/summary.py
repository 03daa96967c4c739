"""What the board opens with: the strongest attacks, by threat model."""

from __future__ import annotations

from collections.abc import Iterable

from benchmark.leaderboard import holding
from benchmark.leaderboard.groups import BELOW, Scored, ThreatGroup, groups, method
from benchmark.leaderboard.markdown import (
    DASH,
    Footnotes,
    Links,
    code,
    grid,
    percent,
    prose,
    ranged,
)
from benchmark.leaderboard.page import gradients, reads
from benchmark.leaderboard.section import Section
from benchmark.stats import LEAST_TRIALS, PRIOR

MOST_METHODS = 5


def threats(sections: Iterable[Section]) -> list[ThreatGroup]:
    """Return the protocols of each threat model and track, most protocols first."""
    return groups(sections, lambda section: (section.track, section.threat))


def heading(group: ThreatGroup) -> str:
    """Return track, threat model and metric in words."""
    threat = group.sections[0].threat.replace("_", " ")
    return f"**{prose(f'{group.track}: {threat}')}** · {prose(group.unit)}"


def glance(found: Iterable[ThreatGroup], lost: holding.Lost, links: Links) -> str:
    """Return a line a threat model: its strongest attack, and the defense that holds most.

    Args:
        found: the threat models.
        lost: what a defense costs.
        links: of the page.
    """
    rows = []
    for group in found:
        contested = group.contested
        if ranked := _ranked(contested):
            middle = holding.middle(_enough(contested, ranked[0]))
            prior = group.undefended(middle.section, PRIOR)
            rows.append(
                [
                    heading(group),
                    _first(contested, ranked[0]),
                    middle.bracketed(links),
                    DASH if prior is None else prior.linked(links),
                    holding.best(group, lost, links),
                ]
            )
    headers = ["Threat model", "Strongest attack", "Median protocol", "Prior", "Best defense"]
    return grid(headers, rows, words=2)


def _first(group: ThreatGroup, name: str) -> str:
    if not group.firsts(name):
        return f"none: {BELOW}"
    return f"{code(name)}, first in {group.first_in(name)}"


def _ranked(group: ThreatGroup) -> list[str]:
    return [name for name in group.methods if group.ranks(name)]


def _enough(group: ThreatGroup, name: str) -> list[Scored]:
    """Return a method's scores over enough trials to be ranked, from the least it sees."""
    return [one for one in group.across(name) if one.score.n >= LEAST_TRIALS]


def attacks(group: ThreatGroup, links: Links, notes: Footnotes) -> str:
    """Return the strongest methods where nothing defends, and which could not be ranked."""
    contested = group.contested
    ranked = _ranked(contested)
    rows = []
    searches = any(_rated(contested, name) for name in ranked[:MOST_METHODS])
    for name in ranked[:MOST_METHODS]:
        scored = _enough(contested, name)
        section, attack = scored[-1].section, scored[-1].cell.attack
        rows.append(
            [
                code(name) + _mark(group, name, notes),
                contested.first_in(name),
                holding.middle(scored).bracketed(links),
                contested.span(scored, links) if len(scored) > 1 else DASH,
                reads(section, attack),
                gradients(section, attack),
                *([_rates(contested, name, links)] if searches else []),
            ]
        )
    headers = ["Attack", "First in", "Median protocol", "All", "Reads", "Gradients"]
    headers += ["Rate"] if searches else []
    table = [grid(headers, rows)] if rows else []
    told = [*_unequal(contested), *_unranked(group, _ranked(group), notes), *_claims(group)]
    return "\n\n".join([*table, *told])


def _rated(group: ThreatGroup, name: str) -> list[Scored]:
    """Return a method's ranked scores that are a search's with a rate."""
    return [one for one in _enough(group, name) if one.section.rates.known(one.cell.attack)]


def _rates(group: ThreatGroup, name: str, links: Links) -> str:
    """Return how a method's rate was chosen: in full of one protocol, else in how many tuned."""
    rated = _rated(group, name)
    if len(rated) == 1:
        return rated[0].section.rates.told(rated[0].cell.attack, links)
    tuned = sum(one.section.rates.tuning(one.cell.attack) is not None for one in rated)
    if not rated:
        return DASH
    return f"tuned in {tuned} of {len(rated)}" if tuned else "not tuned"


def _unequal(group: ThreatGroup) -> list[str]:
    """Return in which protocols searches were ranked without the same tuning, and which."""
    found = []
    for section in group.sections:
        unequal = section.rates.unequal(place.attack for place in section.undefended.places)
        if unequal:
            found.append(f"{', '.join(map(code, sorted(unequal)))} in {prose(section.name)}")
    return [f"Ranked without the same tuning: {'; '.join(found)}."] if found else []


def _claims(group: ThreatGroup) -> list[str]:
    """Return which attacks count for no rank here, since their numbers are claims."""
    found: dict[str, set[str]] = {}
    for section in group.sections:
        for attack, claim in section.claims.items():
            found.setdefault(claim, set()).add(method(attack))
    lines = {"self-reported": "Self-reported, not ranked", "flagged": "Flagged by a verified run"}
    return [
        f"{line}: {', '.join(map(code, sorted(found[claim])))}."
        for claim, line in lines.items()
        if claim in found
    ]


def _mark(group: ThreatGroup, name: str, notes: Footnotes) -> str:
    told = {method(label): each.deviations for label, each in group.sections[0].given.items()}
    deviations = told.get(name)
    return notes.mark(name, deviations and f"{code(name)}: {prose(deviations)}.")


def _unranked(group: ThreatGroup, ranked: list[str], notes: Footnotes) -> list[str]:
    """Return who ran and has no rank, and why."""
    under, few = [], []
    dirty = {method(attack) for section in group.sections for attack in section.dirty}
    for name in group.methods:
        named = code(name) + _mark(group, name, notes)
        shares = [
            share
            for section in group.sections
            for attack in section.attacks(control=False)
            if method(attack) == name and (share := section.share(attack)) is not None and share < 1
        ]
        if shares:
            under.append(f"{named} {ranged([percent(min(shares)), percent(max(shares))])}")
        elif name not in ranked and name not in dirty:
            few.append(named)
    told = []
    if under:
        told.append(f"Not ranked where under their papers' budgets: {', '.join(under)}.")
    if few:
        told.append(f"Too few to rank, under {LEAST_TRIALS} trials: {', '.join(few)}.")
    if dirty:
        names = ", ".join(map(code, sorted(dirty)))
        told.append(f"Not ranked where made from code that no commit holds: {names}.")
    return told
