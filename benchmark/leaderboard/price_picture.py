"""A picture of prices: what a victim is worth behind each defense, over what is read behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.ticker import LogFormatter

from benchmark.leaderboard.figures import Figure
from benchmark.leaderboard.picture import INK, drawing, svg

_INCHES = (9.0, 4.4)
_LINE = 0.15  # inches of a defense's name beside the dots
_COLUMNS, _ROWS = 36, 22  # of numbers that find room beside one another
_AROUND = sorted(
    ((right, up) for right in range(-3, 4) for up in range(-3, 4)),
    key=lambda step: (step[0] ** 2 + step[1] ** 2, -step[1], -step[0]),
)
"""Places round a dot, in numbers' widths and heights, nearest first."""
_LABELLED = (2.0, 0.5)  # decades on an axis: below the first, ticks between powers are told too


@dataclass(frozen=True, order=True)
class Dot:
    """A defense: its worst case, what a victim behind it is worth, its name and colour."""

    x: float
    y: float
    name: str
    colour: str


def picture(dots: Sequence[Dot], worst: str, figure: Figure) -> str:
    """Return a dot a defense, numbered from left to right as beside it, as SVG.

    Args:
        dots: of the defenses.
        worst: what is along x.
        figure: what is along y, on a logarithmic axis where it is an exponential.
    """
    dots = sorted(dots)
    log = not figure.higher
    wide, high = _INCHES
    with drawing((wide, max(high, _LINE * (len(dots) + 3)))) as drawn:
        axes = drawn.add_subplot()
        for number, dot in enumerate(dots, start=1):
            label = f"{number}  {dot.name}"
            axes.plot(dot.x, dot.y, "o", color=dot.colour, markersize=5, label=label)
        places = _beside([(dot.x, math.log(dot.y) if log else dot.y) for dot in dots])
        for number, (x, y) in enumerate(places, start=1):
            high = math.exp(y) if log else y
            axes.text(x, high, str(number), ha="center", va="center", fontsize=7)
        if log:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(LogFormatter())
            axes.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=_LABELLED))
        axes.margins(y=0.15)
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=7, labelcolor=INK
        )
        axes.set_xlabel(worst)
        axes.set_ylabel(f"{figure.name}, {figure.unit}")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=INK, alpha=0.2, linewidth=0.5)
        return svg(drawn)


def _beside(dots: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return where each dot's number stands: the nearest place to it where nothing does."""
    if not dots:
        return []
    across, along = (max(each) - min(each) or 1.0 for each in zip(*dots, strict=True))
    wide, high = across / _COLUMNS, along / _ROWS
    taken, found = list(dots), []
    for x, y in dots:
        places = [(x + right * wide, y + up * high) for right, up in _AROUND]
        free = (
            (a, b)
            for a, b in places
            if all(abs(a - c) >= 0.9 * wide or abs(b - d) >= 0.9 * high for c, d in taken)
        )
        found.append(next(free, places[0]))
        taken.append(found[-1])
    return found
