"""What one update of a victim gives away: a line a model, size of the update, and server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from benchmark.leaderboard.groups import ThreatGroup, groups, method
from benchmark.leaderboard.markdown import DASH, NBSP, Links, code, grid, lines, prose, ranged
from benchmark.leaderboard.section import NONE, Section

NOUNS = {"vision": "image", "text": "sequence"}


def models(sections: Iterable[Section], links: Links) -> dict[str, str]:
    """Return by track, for each victim, what is read undefended and under its best defense."""
    found = groups(sections, lambda s: (s.track, _victim(s), _samples(s) > 1, _server(s)))
    found.sort(key=lambda g: (g.place[0], _victim(g.sections[0]), _samples(g.sections[0])))
    told: dict[str, list[ThreatGroup]] = {}
    for group in found:
        told.setdefault(group.track, []).append(group)
    tables = {}
    for track, each in told.items():
        unit = Counter(group.unit for group in each).most_common(1)[0][0]
        rows = [_row(group, unit, links) for group in each if group.worst_cases(NONE)]
        headers = ["Victim", "An update of", f"Undefended, {prose(unit)}, mostly by"]
        tables[track] = grid([*headers, "Prior alone", "Best defended, by"], rows, words=2)
    return tables


def _row(group: ThreatGroup, unit: str, links: Links) -> list[str]:
    first, worst = group.sections[0], group.worst_cases(NONE)
    sizes = sorted({_samples(section) for section in group.sections})
    by = Counter(method(one.cell.attack) for one in worst).most_common(1)[0][0]
    noun = NOUNS.get(first.track, "sample") + "s" * (sizes != [1])
    other = "" if group.unit == unit else f" {prose(group.unit)}"
    return [
        code(_victim(first)),
        f"{ranged([str(sizes[0]), str(sizes[-1])])}{NBSP}{noun}, {_server(first)}",
        f"{group.span(worst, links)}{other}<br>{code(by)}",
        group.span(group.prior(), links),
        _defended(group, links),
    ]


def _defended(group: ThreatGroup, links: Links) -> str:
    """Return the defense whose worst case is the least, of those that most protocols ran."""
    if all(section.outcome(NONE) == "holds" for section in group.sections):
        return "no leak undefended"
    tried = {name: group.worst_cases(name) for name in group.defenses if name != NONE}
    most = max(map(len, tried.values()), default=0)
    if not most:
        return DASH
    worst = {name: each[-1] for name, each in tried.items() if len(each) == most}
    least = group.ordered(worst.values())[0]
    name = next(name for name, one in worst.items() if one == least)
    return f"{group.span(tried[name], links)}<br>{lines(name)}"


def _victim(section: Section) -> str:
    return str(_part(section, "victim").get("architecture", "unnamed")).removeprefix("timm/")


def _samples(section: Section) -> int:
    """Return the images or sequences behind one update."""
    federation = _part(section, "federation")
    counts = [federation.get(name, 1) for name in ("batch_size", "users")]
    return int(str(counts[0])) * int(str(counts[1]))


def _server(section: Section) -> str:
    server = str(_part(section, "threat").get("server", "unknown"))
    return f"{server.partition('_')[0]} server"


def _part(section: Section, name: str) -> dict[str, object]:
    found = section.frozen.content.get(name)
    return found if isinstance(found, dict) else {}
