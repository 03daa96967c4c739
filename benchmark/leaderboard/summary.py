"""What the board opens with: the strongest attacks, the defenses that hold, and for whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from benchmark.leaderboard.groups import Group, Scored, groups
from benchmark.leaderboard.markdown import DASH, Footnotes, Links, code, grid, percent, prose
from benchmark.leaderboard.page import gradients, reads
from benchmark.leaderboard.section import NONE, Section
from benchmark.stats import LEAST_TRIALS

MOST_METHODS = 5


def threats(sections: Iterable[Section]) -> dict[str, Group]:
    """Return the protocols of each track and threat model by heading, most protocols first."""
    found = groups(sections, lambda section: (section.track, section.threat))
    order = sorted(found.values(), key=lambda group: (group.place, -len(group.sections)))
    return {f"{g.track}: {g.sections[0].threat.replace('_', ' ')}": g for g in order}


def attacks(group: Group, links: Links, notes: Footnotes) -> str:
    """Return the strongest methods where nothing defends, and which could not be ranked."""
    ranked = [name for name in group.methods if group.firsts(name)[1]]
    rows = []
    for method in ranked[:MOST_METHODS]:
        scored = group.spread(method)
        first, many = group.firsts(method)
        last = scored[-1]
        given = last.section.given[last.cell.attack]
        rows.append(
            [
                code(method) + notes.mark(method, given.deviations),
                f"{first} of {many}",
                scored[(len(scored) - 1) // 2].bracketed(links),
                _range(scored, links),
                reads(last.section, last.cell.attack),
                gradients(last.section, last.cell.attack),
            ]
        )
    headers = ["Attack", "First in", f"{group.unit}, median protocol", "Range", "Reads"]
    table = [grid([*headers, "Gradients"], rows)] if rows else []
    return "\n\n".join([*table, *_unranked(group, ranked, notes)])


def _unranked(group: Group, ranked: list[str], notes: Footnotes) -> list[str]:
    """Return who ran and has no rank, and why."""
    short, few = [], []
    for method in group.methods:
        shares = {
            section.spent(label) / full
            for section in group.sections
            for label in section.attacks(control=False)
            if label.split(",")[0] == method
            and section.reduced(label)
            and (full := section.in_paper(label))
        }
        given = next(
            s.given[a] for s in group.sections for a in s.given if a.split(",")[0] == method
        )
        named = code(method) + notes.mark(method, given.deviations)
        if shares:
            low, high = percent(min(shares)), percent(max(shares))
            short.append(f"{named} {low if low == high else f'{low} to {high}'}")
        elif method not in ranked:
            few.append(named)
    told = []
    if short:
        told.append(f"Not ranked, under their papers' budgets of gradients: {', '.join(short)}.")
    if few:
        told.append(f"Too few to rank (under {LEAST_TRIALS} trials): {', '.join(few)}.")
    return told


def _range(scored: list[Scored], links: Links) -> str:
    if len(scored) == 1:
        return DASH
    return f"{scored[0].linked(links)} to {scored[-1].linked(links)}"


def defenses(group: Group, links: Links) -> str:
    """Return each defense's worst case over the protocols, and in how many it holds.

    Counted are the protocols that leak where nothing defends.
    """
    names = {name for section in group.sections for name in section.worst}
    leaking = [section for section in group.sections if section.outcome(NONE) == "leaks"]
    rows = []
    for name in names:
        found = Counter(s.outcome(name) for s in leaking if name in s.worst)
        scored = group.worst_cases(name)
        if not scored:
            continue
        by = Counter(one.cell.attack for one in scored).most_common(1)[0][0]
        middle = scored[(len(scored) - 1) // 2]
        key = (name != NONE, -found["holds"], found["leaks"], *_key(group, middle), name)
        row = [
            code(name),
            f"{found['holds']} of {sum(found.values())}" if name != NONE else DASH,
            str(found["leaks"]),
            str(found["open"]),
            middle.linked(links),
            f"{scored[-1].bracketed(links)}",
            f"{code(scored[-1].section.name)}",
        ]
        rows.append((key, row))
    if len(rows) < 2:
        return ""
    headers = ["Defense", "Holds in", "Leaks in", "Open", f"Worst case, {group.unit}: median"]
    return grid(
        [*headers, "highest" if group.higher else "lowest", "there"],
        [row for _, row in sorted(rows, key=lambda one: one[0])],
    )


def _key(group: Group, one: Scored) -> tuple[float]:
    return (one.score.mean if group.higher else -one.score.mean,)
