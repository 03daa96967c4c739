"""What one update of a victim gives away: a line a model, size of the update, and server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from benchmark.leaderboard.groups import Group, Scored, groups
from benchmark.leaderboard.markdown import DASH, Links, code, grid
from benchmark.leaderboard.section import NONE, Section


def models(sections: Iterable[Section], links: Links) -> dict[str, str]:
    """Return by track, for each victim, what is read undefended and under its best defense."""
    found = groups(sections, lambda s: (s.track, _victim(s), _samples(s) > 1, _server(s)))
    rows: dict[str, list[list[str]]] = {}
    units: dict[str, str] = {}
    for _, group in sorted(found.items(), key=lambda one: (one[1].place, str(one[0]))):
        undefended = group.worst_cases(NONE)
        if undefended:
            rows.setdefault(group.track, []).append(_row(group, undefended, links))
            units[group.track] = group.unit
    headers = ["Victim", "Update of", "Server", "Strongest attack", "It reads", "Prior alone"]
    return {
        track: grid(
            [*headers[:4], f"It reads, {units[track]}", *headers[5:], "At best defended"],
            each,
            words=4,
        )
        for track, each in rows.items()
    }


def _row(group: Group, undefended: Sequence[Scored], links: Links) -> list[str]:
    first = group.sections[0]
    sizes = sorted({_samples(section) for section in group.sections})
    many = "one" if sizes == [1] else " to ".join(map(str, dict.fromkeys((sizes[0], sizes[-1]))))
    by = Counter(one.cell.attack.split(",")[0] for one in undefended).most_common(1)[0][0]
    return [
        code(_victim(first)),
        many,
        _server(first),
        code(by),
        _ends(undefended, links),
        _ends(group.alone(), links),
        _defended(group, links),
    ]


def _defended(group: Group, links: Links) -> str:
    """Return the defense whose worst case is the least, of those that most protocols ran."""
    names = {name for section in group.sections for name in section.worst} - {NONE}
    tried = {name: group.worst_cases(name) for name in sorted(names)}
    most = max(map(len, tried.values()), default=0)
    if not most:
        return DASH
    worst = [(name, each[-1]) for name, each in tried.items() if len(each) == most]
    least = group.ordered(one for _, one in worst)[0]
    name = next(name for name, one in worst if one == least)
    return f"{least.linked(links)} {code(name)}"


def _ends(scored: Sequence[Scored], links: Links) -> str:
    if not scored:
        return DASH
    ends = dict.fromkeys(one.linked(links) for one in (scored[0], scored[-1]))
    return " to ".join(ends)


def _victim(section: Section) -> str:
    return str(_part(section, "victim").get("architecture", "unnamed")).removeprefix("timm/")


def _samples(section: Section) -> int:
    """Return the images or sequences behind one update."""
    federation = _part(section, "federation")
    return int(federation.get("batch_size", 1)) * int(federation.get("users", 1))


def _server(section: Section) -> str:
    return str(_part(section, "threat").get("server", "")).replace("_", " ").partition(" ")[0]


def _part(section: Section, name: str) -> dict[str, object]:
    found = section.frozen.content.get(name)
    return found if isinstance(found, dict) else {}
