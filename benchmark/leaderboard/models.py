"""What one update of a victim gives away: a line a model, size of the update, and server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmark.leaderboard.groups import Group, Scored, groups, method
from benchmark.leaderboard.markdown import DASH, Links, code, grid, prose, ranged, stacked
from benchmark.leaderboard.section import NONE, Section


def models(sections: Iterable[Section], links: Links) -> dict[str, str]:
    """Return by track, for each victim, what is read undefended and under its best defense."""
    found = groups(sections, lambda s: (s.track, _victim(s), _samples(s) > 1, _server(s)))
    found.sort(key=lambda g: (g.place[0], _victim(g.sections[0]), _samples(g.sections[0])))
    told: dict[str, list[Group]] = {}
    for group in found:
        told.setdefault(group.track, []).append(group)
    tables = {}
    for track, each in told.items():
        unit = Counter(group.unit for group in each).most_common(1)[0][0]
        rows = [_row(group, unit, links) for group in each if group.worst_cases(NONE)]
        headers = ["Victim", "An update of", "Mostly read by", f"Undefended, {prose(unit)}"]
        tables[track] = grid([*headers, "Prior alone", "Best defended"], rows, words=3)
    return tables


def _row(group: Group, unit: str, links: Links) -> list[str]:
    first, worst = group.sections[0], group.worst_cases(NONE)
    sizes = sorted({_samples(section) for section in group.sections})
    by = Counter(method(one.cell.attack) for one in worst).most_common(1)[0][0]
    other = "" if group.unit == unit else f" {prose(group.unit)}"
    return [
        stacked(_victim(first)),
        f"{ranged([str(sizes[0]), str(sizes[-1])])}, {_server(first)} server",
        code(by),
        group.span(worst, links) + other,
        group.span(group.prior(), links),
        _defended(group, links),
    ]


def _defended(group: Group, links: Links) -> str:
    """Return the defense whose worst case is the least, of those that most protocols ran."""
    tried = {name: group.worst_cases(name) for name in group.defenses if name != NONE}
    most = max(map(len, tried.values()), default=0)
    if not most:
        return DASH
    worst = {name: each[-1] for name, each in tried.items() if len(each) == most}
    least = group.ordered(worst.values())[0]
    name = next(name for name, one in worst.items() if one == least)
    return f"{group.span(tried[name], links)}<br>{code(name)}"


def _victim(section: Section) -> str:
    return str(_part(section, "victim").get("architecture", "unnamed")).removeprefix("timm/")


def _samples(section: Section) -> int:
    """Return the images or sequences behind one update."""
    federation = _part(section, "federation")
    counts = [federation.get(name, 1) for name in ("batch_size", "users")]
    return int(str(counts[0])) * int(str(counts[1]))


def _server(section: Section) -> str:
    return str(_part(section, "threat").get("server", "")).replace("_", " ").partition(" ")[0]


def _part(section: Section, name: str) -> dict[str, object]:
    found = section.frozen.content.get(name)
    return found if isinstance(found, dict) else {}
