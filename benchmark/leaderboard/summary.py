"""What the board opens with: the strongest attacks and the defenses that hold, by threat model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmark.leaderboard.groups import Scored, ThreatGroup, groups, method
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
from benchmark.leaderboard.section import NONE, Section
from benchmark.stats import LEAST_TRIALS, PRIOR

MOST_METHODS = 5


def threats(sections: Iterable[Section]) -> list[ThreatGroup]:
    """Return the protocols of each threat model and track, most protocols first."""
    return groups(sections, lambda section: (section.track, section.threat))


def heading(group: ThreatGroup) -> str:
    """Return track, threat model and metric in words."""
    threat = group.sections[0].threat.replace("_", " ")
    return f"**{prose(f'{group.track}: {threat}')}** · {prose(group.unit)}"


def glance(found: Iterable[ThreatGroup], links: Links) -> str:
    """Return a line a threat model: its strongest attack, and the defense that holds most."""
    rows = []
    for group in found:
        if ranked := _ranked(group):
            middle = _middle(_enough(group, ranked[0]))
            prior = group.undefended(middle.section, PRIOR)
            rows.append(
                [
                    heading(group),
                    f"{code(ranked[0])}, first in {group.first_in(ranked[0])}",
                    middle.bracketed(links),
                    DASH if prior is None else prior.linked(links),
                    _best(group),
                ]
            )
    headers = ["Threat model", "Strongest attack", "Median protocol", "Prior", "Best defense"]
    return grid(headers, rows, words=2)


def _ranked(group: ThreatGroup) -> list[str]:
    return [name for name in group.methods if group.ranks(name)]


def _enough(group: ThreatGroup, name: str) -> list[Scored]:
    """Return a method's scores over enough trials to be ranked, from the least it sees."""
    return [one for one in group.across(name) if one.score.n >= LEAST_TRIALS]


def _middle(scored: Sequence[Scored]) -> Scored:
    return scored[(len(scored) - 1) // 2]


def attacks(group: ThreatGroup, links: Links, notes: Footnotes) -> str:
    """Return the strongest methods where nothing defends, and which could not be ranked."""
    ranked = _ranked(group)
    rows = []
    searches = any(_rated(group, name) for name in ranked[:MOST_METHODS])
    for name in ranked[:MOST_METHODS]:
        scored = _enough(group, name)
        section, attack = scored[-1].section, scored[-1].cell.attack
        rows.append(
            [
                code(name) + _mark(group, name, notes),
                group.first_in(name),
                _middle(scored).bracketed(links),
                group.span(scored, links) if len(scored) > 1 else DASH,
                reads(section, attack),
                gradients(section, attack),
                *([_rates(group, name, links)] if searches else []),
            ]
        )
    headers = ["Attack", "First in", "Median protocol", "All", "Reads", "Gradients"]
    headers += ["Rate"] if searches else []
    table = [grid(headers, rows)] if rows else []
    return "\n\n".join([*table, *_unequal(group), *_unranked(group, ranked, notes)])


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


def _mark(group: ThreatGroup, name: str, notes: Footnotes) -> str:
    told = {method(label): each.deviations for label, each in group.sections[0].given.items()}
    deviations = told.get(name)
    return notes.mark(name, deviations and f"{code(name)}: {prose(deviations)}.")


def _unranked(group: ThreatGroup, ranked: list[str], notes: Footnotes) -> list[str]:
    """Return who ran and has no rank, and why."""
    under, few = [], []
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
        elif name not in ranked:
            few.append(named)
    told = []
    if under:
        told.append(f"Not ranked where under their papers' budgets: {', '.join(under)}.")
    if few:
        told.append(f"Too few to rank, under {LEAST_TRIALS} trials: {', '.join(few)}.")
    return told


def _held(group: ThreatGroup, defense: str) -> Counter[str]:
    """Return what became of a defense in the protocols that leak undefended."""
    leaking = [section for section in group.sections if section.outcome(NONE) == "leaks"]
    return Counter(s.outcome(defense) for s in leaking if defense in s.worst)


def _tried(group: ThreatGroup) -> list[str]:
    """Return the defenses of which something can be said, from the one that holds most."""
    counts = {name: _held(group, name) for name in group.defenses if name != NONE}
    said = [name for name, count in counts.items() if count["holds"] + count["leaks"]]
    sign = 1 if group.higher else -1

    def key(name: str) -> tuple[float, float, str]:
        worst = group.worst_cases(name)
        return -counts[name]["holds"], sign * worst[-1].score.mean if worst else 0.0, name

    return sorted(said, key=key)


def _best(group: ThreatGroup) -> str:
    tried = _tried(group)
    if not tried:
        return "none tried on ten trials"
    held = _held(group, tried[0])
    return f"{code(tried[0])}, holds in {held['holds']} of {sum(held.values())}"


def defenses(group: ThreatGroup, links: Links) -> str:
    """Return each defense's worst case over the protocols, and in how many it holds."""
    tried = _tried(group)
    rows = []
    for name in [NONE, *tried] if tried else []:
        held, scored = _held(group, name), group.worst_cases(name)
        if scored:
            rows.append(
                [
                    code(name),
                    f"{held['holds']} of {sum(held.values())}" if name != NONE else DASH,
                    str(held["leaks"]),
                    str(held["open"]),
                    _reliable(group, name),
                    _middle(scored).linked(links),
                    scored[-1].bracketed(links),
                ]
            )
    headers = ["Defense", "Holds in", "Leaks in", "Open in", "Reliable in", "Worst case, median"]
    headers.append("Highest" if group.higher else "Lowest")
    return grid(headers, rows) if rows else ""


def _reliable(group: ThreatGroup, defense: str) -> str:
    """Return in how many protocols a defense's worst case is by an attack that knows it."""
    if defense == NONE:
        return DASH
    met = [section for section in group.sections if defense in section.worst]
    return f"{sum(section.reliable(defense) for section in met)} of {len(met)}"
