"""The picture the board opens with: attacks undefended and defenses at their worst, by track."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmark.leaderboard.groups import Scored, ThreatGroup, groups
from benchmark.leaderboard.section import NONE, Section
from benchmark.stats import LEAST_TRIALS

INK = "#7d8590"
"""A grey that can be read on white and on near black."""
COLOURS = {"leaks": "#e5534b", "holds": "#2da44e", "open": INK}
ATTACK = "#4184e4"
MOST_ROWS = 12
MOST_DEFENSES = 24
WIDTH = 10.0
"""Inches of a picture."""
_ROW, _FRAME = 0.24, 1.0  # inches: a row, heading and axis
_STYLE: Any = {
    "svg.hashsalt": "gradleak",
    "svg.fonttype": "none",
    "font.size": 9,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def picture(sections: Iterable[Section]) -> str:
    """Return the picture as SVG; the same records give the same bytes.

    A dot is a protocol: filled where it rests on ten trials or more, and hollow otherwise. The grey
    band is the range of what the prior alone scores.
    """
    tracks: dict[str, ThreatGroup] = {}
    for group in groups(sections, lambda section: section.track):
        tracks.setdefault(group.track, group)  # of most protocols, where a track has two metrics
    panels = [[_attacks(group), _defenses(group)] for group in tracks.values()]
    heights = [_FRAME + _ROW * max(len(panel) for panel in pair) for pair in panels]
    with drawing((WIDTH, sum(heights))) as figure:
        grid = figure.add_gridspec(len(tracks), 2, height_ratios=heights)
        for i, (group, pair) in enumerate(zip(tracks.values(), panels, strict=True)):
            for j, (panel, what) in enumerate(
                zip(pair, ("each attack, undefended", "each defense, worst case"), strict=True)
            ):
                _draw(figure.add_subplot(grid[i, j]), group, panel, f"{group.track}: {what}")
        return svg(figure)


@contextmanager
def drawing(inches: tuple[float, float]) -> Iterator[Figure]:
    """Yield a figure of a size, in the style of all pictures."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def svg(figure: Figure) -> str:
    """Return a figure as SVG, transparent; the same figure gives the same bytes."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return text.getvalue()


Rows = dict[str, list[tuple[Scored, str]]]


def _attacks(group: ThreatGroup) -> Rows:
    return {
        name: [(one, ATTACK) for one in group.across(name)] for name in group.methods[:MOST_ROWS]
    }


def _defenses(group: ThreatGroup) -> Rows:
    """Return a row a defense, of all its strengths, the most leaking first, after none at all."""
    rows: Rows = {}
    for label in sorted({name for section in group.sections for name in section.worst}):
        found = [(one, COLOURS[one.section.outcome(label)]) for one in group.worst_cases(label)]
        rows.setdefault(label.split(",")[0], []).extend(found)
    undefended = rows.pop(NONE, [])

    def leak(name: str) -> float:
        middle = median(one.score.mean for one, _ in rows[name])
        return -middle if group.higher else middle

    order = sorted(rows, key=lambda name: (leak(name), name))
    return {NONE: undefended, **{name: rows[name] for name in order[:MOST_DEFENSES]}}


def _draw(axes: Axes, group: ThreatGroup, rows: Rows, title: str) -> None:
    """Draw a row of dots for each name, the first on top."""
    if prior := [one.score.mean for one in group.prior()]:
        axes.axvspan(min(prior), max(prior), color=INK, alpha=0.25, linewidth=0)
    dots: dict[tuple[str, bool], list[tuple[float, int]]] = {}
    for place, scored in enumerate(rows.values()):
        for one, colour in scored:
            filled = one.score.n >= LEAST_TRIALS
            dots.setdefault((colour, filled), []).append((one.score.mean, place))
    for (colour, filled), places in sorted(dots.items()):
        face = colour if filled else "none"
        style: Any = {"markersize": 5, "alpha": 0.8, "color": colour, "markerfacecolor": face}
        axes.plot(*zip(*places, strict=True), "o", **style)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_xlabel(f"{group.unit}, {'right' if group.higher else 'left'} is worse for the client")
    axes.set_title(title, loc="left", fontsize=10, color=INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=INK, alpha=0.2, linewidth=0.5)
