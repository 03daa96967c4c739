"""The curves that a suite asks for: how scores depend on one setting, from the records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmark.leaderboard.groups import Scored
from benchmark.leaderboard.section import NONE, Section
from benchmark.protocol import Curve, Suite
from benchmark.stats import PRIOR, CellSummary

X = str | int | float
"""A place on the axis: a number, or the name of a choice."""


@dataclass(frozen=True)
class Drawn:
    """A curve with its points.

    Attributes:
        lines: points of each line by x; the prior alone is the last, under its own name, unless a
            setting has a line a value.
        unit: of the scores, with their name.
    """

    curve: Curve
    lines: Mapping[str, Mapping[X, Scored]]
    unit: str

    @property
    def places(self) -> list[X]:
        """Every x, numbers in order and names as they came."""
        found = list(dict.fromkeys(x for points in self.lines.values() for x in points))
        return found if any(isinstance(x, str) for x in found) else sorted(found)


def curves(suite: Suite, sections: Iterable[Section]) -> list[Drawn]:
    """Return the curves of a suite that have points.

    Where two protocols stand at one x of one line, the suite is wrong, and the later counts; a test
    keeps the committed suites from it.
    """
    known = {section.name: section for section in sections if section.summaries}
    drawn = []
    for curve in suite.curves:
        own = [known[name] for name in curve.protocols or suite.protocols if name in known]
        lines = _lines(curve, own)
        if any(name != PRIOR for name in lines):
            unit = own[0].frozen.units[curve.metric or own[0].primary]
            drawn.append(Drawn(curve, lines, unit))
    return drawn


def _lines(curve: Curve, own: Sequence[Section]) -> dict[str, dict[X, Scored]]:
    found: dict[str, dict[X, Scored]] = {}
    prior: dict[X, Scored] = {}
    level: Scored | None = None
    for section in own:
        for cell in sorted(section.summaries, key=lambda cell: _order(curve, cell)):
            x, value = _place(curve, section, cell), _line_of(curve, section, cell)
            score = cell.scores.get(curve.metric or section.primary)
            if score is None or cell.attack in section.claims:
                continue
            if cell.attack == PRIOR and curve.x.startswith("attack."):  # it has no such argument
                if cell.defense in _defenses(curve):
                    level = Scored(section, cell, score)
            elif x is None:
                continue
            elif cell.attack == PRIOR:
                if value is None:  # else it has a line a value too, and says little by it
                    prior[x] = Scored(section, cell, score)
            elif not cell.control and _asked_for(curve, cell.attack):
                named = [part for part in (_named(curve, cell.attack), value) if part is not None]
                line = ", ".join(map(str, named))
                found.setdefault(line, {})[x] = Scored(section, cell, score)
    if level is not None:
        prior = {x: level for points in found.values() for x in points}
    return {**found, PRIOR: prior} if prior else found


def _line_of(curve: Curve, section: Section, cell: CellSummary) -> X | None:
    """Return the value that has a line to itself; None where each attack has one."""
    if curve.lines == "defense":
        return cell.defense
    return setting(section, curve.lines) if curve.lines else None


def _asked_for(curve: Curve, attack: str) -> bool:
    """Tell whether an attack is one of a curve's, on whose axis its argument may stand."""
    return not curve.attacks or _without(curve, attack) in curve.attacks


def _named(curve: Curve, attack: str) -> str | None:
    """Return an attack's name, unless the curve is of one attack, whose lines say more."""
    return None if curve.lines and len(curve.attacks) == 1 else _without(curve, attack)


def _without(curve: Curve, attack: str) -> str:
    """Return an attack's label less the argument that is the axis."""
    owner, _, argument = curve.x.partition(".")
    return _less(attack, argument) if owner == "attack" else attack


def _order(curve: Curve, cell: CellSummary) -> tuple[int, str]:
    named = _defenses(curve)
    return named.index(cell.defense) if cell.defense in named else len(named), cell.defense


def _defenses(curve: Curve) -> tuple[str, ...]:
    return curve.defenses or (NONE,)


def _place(curve: Curve, section: Section, cell: CellSummary) -> X | None:
    """Return where a cell stands on the axis; None where it stands on another curve."""
    owner, _, argument = curve.x.partition(".")
    if curve.x == "defense":
        return cell.defense if cell.defense in _defenses(curve) else None
    name, arguments = _arguments(cell.defense)
    if owner == name and argument in arguments:
        rest = _less(cell.defense, argument)  # its other arguments make another curve
        return _number(arguments[argument]) if rest in (curve.defenses or (name,)) else None
    if cell.defense not in _defenses(curve):
        return None
    if owner == "attack":
        given = _arguments(cell.attack)[1].get(argument)
        return curve.unsaid if given is None else _number(given)
    said = setting(section, curve.x)
    return curve.unsaid if said is None else said


def _arguments(label: str) -> tuple[str, dict[str, str]]:
    """Return a label's name and arguments."""
    name, *given = label.split(",")
    return name, dict(part.split("=", 1) for part in given)


def setting(section: Section, key: str) -> X | None:
    """Return what a frozen protocol says under a dotted key; None where it says nothing."""
    found: Any = section.frozen.content
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found if found is None or isinstance(found, int | float) else str(found)


def _less(label: str, argument: str) -> str:
    """Return a label without one of its arguments."""
    return ",".join(part for part in label.split(",") if not part.startswith(f"{argument}="))


def _number(text: str) -> X:
    try:
        return float(text)
    except ValueError:
        return text
