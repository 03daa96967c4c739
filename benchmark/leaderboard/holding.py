"""Which defenses hold and what they cost: a row a defense, and every strength on a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmark.leaderboard.figures import FIGURES, Figure
from benchmark.leaderboard.groups import Scored, ThreatGroup, method
from benchmark.leaderboard.markdown import DASH, Links, code, grid
from benchmark.leaderboard.page import MARKS
from benchmark.leaderboard.section import NONE

PAGE = "defenses.md"
"""The page of all strengths, in the folder of pages."""
Lost = Callable[[str, str, Links], str]
"""Tells what a defense costs in a track's figure; a dash where it is not measured."""
HOLDS = f"""\
{MARKS["holds"]} **holds**: no attack's lead over the prior alone, on the same trials, reaches \
1 dB (0.05 of a score up to 1) at the upper end of its 95 % interval. {MARKS["leaks"]} **leaks**: \
one exceeds it at the lower end. {MARKS["open"]} **open**: neither, or under ten trials, or no \
attack had its paper's budget. Counted are the protocols that leak where nothing defends. A worst \
case is **reliable** where an attack that knows the defense (`adaptive_to`) is the strongest, or \
as strong. **Lost** are points of accuracy of a victim trained behind the defense, **added** is \
what the perplexity of one of text rises by."""
_STRENGTH = """\
Each defense is told at the strength that holds in most protocols, of all threat models together; \
[every strength, by threat model]({page})."""


def middle(scored: Sequence[Scored]) -> Scored:
    """Return the median of some scores in order, the lower one of an even number."""
    return scored[(len(scored) - 1) // 2]


def best(group: ThreatGroup, lost: Lost, links: Links) -> str:
    """Return the defense that holds in most protocols, and what it costs."""
    tried = _tried(group)
    if not tried:
        return "none tried on ten trials"
    held, cost = _held(group, tried[0]), _cost(group, tried[0], lost, links)
    said = f"{code(tried[0])}, holds in {held['holds']} of {held.total()}"
    return said if cost == DASH else f"{said}, {cost} {_figure(group).brief}"


def table(group: ThreatGroup, lost: Lost, links: Links, page: Path) -> str:
    """Return a row a defense, at the strength that holds in most protocols; nothing without one.

    Args:
        group: the protocols.
        lost: what a defense costs.
        links: of the board.
        page: where all strengths stand.
    """
    told: dict[str, str] = {}
    for name in _tried(group):
        told.setdefault(method(name), name)
    if not told:
        return ""
    names = list(told.values())
    sentence = f"{_sentence(group, names, lost, links)} {_STRENGTH.format(page=links.url(page))}"
    return f"{_grid(group, names, lost, links)}\n\n{sentence}"


def strengths(
    threats: Sequence[tuple[str, ThreatGroup]], lost: Lost, links: Links, board: Path
) -> str:
    """Return the page of all strengths, a table a threat model; nothing where none was tried.

    Args:
        threats: the heading of each threat model, and its protocols.
        lost: what a defense costs.
        links: of the page.
        board: the board it belongs to.
    """
    tables: list[str] = []
    for heading, group in threats:
        if tried := _tried(group):
            tables += [heading, _grid(group, tried, lost, links)]
    if not tables:
        return ""
    title = ["# Every defense at every strength", f"[The board]({links.url(board)})", HOLDS]
    return "\n\n".join([*title, *tables, links.definitions()]) + "\n"


def _figure(group: ThreatGroup) -> Figure:
    """Return what prices of a group's track are told in."""
    return FIGURES.get(group.sections[0].track, FIGURES["vision"])


def _cost(group: ThreatGroup, defense: str, lost: Lost, links: Links) -> str:
    return lost(group.sections[0].track, defense, links)


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


def _sentence(group: ThreatGroup, names: Sequence[str], lost: Lost, links: Links) -> str:
    """Return what holds wherever it was tried and what that costs, and what leaks everywhere."""
    held = {name: _held(group, name) for name in names}
    holding = [name for name, count in held.items() if count["holds"] == count.total()]
    leaking = [name for name, count in held.items() if count["leaks"] == count.total()]
    one = len(holding) == 1
    where = f"in every protocol that {'it was' if one else 'they were'} tried in"
    said = f"{len(holding)} of {len(names)} defenses {'holds' if one else 'hold'} {where}"
    if holding:
        brief, listed = _figure(group).brief, []
        for name in holding:
            cost = _cost(group, name, lost, links)
            price = "" if cost == DASH else f"{cost} {brief}, "
            listed.append(f"{code(name)} ({price}reliable in {_reliable(group, name)})")
        said += f": {', '.join(listed)}"
    return f"{said}; {len(leaking)} leak in every one." if leaking else f"{said}."


def _grid(group: ThreatGroup, names: Iterable[str], lost: Lost, links: Links) -> str:
    """Return what became of each defense, after none at all."""
    rows = []
    for name in (NONE, *names):
        held, scored = _held(group, name), group.worst_cases(name)
        if scored:
            rows.append(
                [
                    code(name),
                    DASH if name == NONE else f"{held['holds']} of {held.total()}",
                    str(held["leaks"]),
                    str(held["open"]),
                    _reliable(group, name),
                    middle(scored).told(links),
                    scored[-1].told(links, bracketed=True),
                    DASH if name == NONE else _cost(group, name, lost, links),
                ]
            )
    headers = ["Defense", "Holds in", "Leaks in", "Open in", "Reliable in", "Worst case, median"]
    highest = "Highest" if group.higher else "Lowest"
    return grid([*headers, highest, _figure(group).cost], rows)


def _reliable(group: ThreatGroup, defense: str) -> str:
    """Return in how many protocols a defense's worst case is by an attack that knows it."""
    if defense == NONE:
        return DASH
    met = [section for section in group.sections if defense in section.worst]
    return f"{sum(section.reliable(defense) for section in met)} of {len(met)}"
