"""A suite's curves as its reader sees them: a picture, and a table of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, StrMethodFormatter

from benchmark.leaderboard.curves import Drawn, X, curves
from benchmark.leaderboard.groups import Scored
from benchmark.leaderboard.markdown import DASH, Links, code, grid, prose
from benchmark.leaderboard.picture import INK, WIDTH, drawing, svg
from benchmark.leaderboard.section import Section
from benchmark.protocol import read_suites
from benchmark.stats import LEAST_TRIALS, PRIOR

_PANELS = 2  # beside one another
_HEIGHT = 2.7  # inches of a panel without its legend
_LINE = 13  # points of a line of it
_INCH = 72  # points
_FITS = 45  # characters of names that stand side by side beneath a panel
_COLOURS = ("#4184e4", "#e5534b", "#2da44e", "#bf8700", "#a475f9", "#cc6b2c")


@dataclass(frozen=True)
class Study:
    """A suite's curves that have points."""

    name: str
    title: str
    drawn: Sequence[Drawn]

    @property
    def page(self) -> str:
        """Name of its page and of its picture, less what they end in."""
        return f"study_{self.name}"

    def pictured(self) -> str:
        """Return a picture of a panel a curve, as SVG.

        A point is a mean with its 95 % interval, hollow where under ten trials.
        """
        rows = -(-len(self.drawn) // _PANELS)
        above = _LINE * (1 + max(len(one.lines) for one in self.drawn)) + 6
        with drawing((WIDTH, (_HEIGHT + above / _INCH) * rows)) as figure:
            for at, one in enumerate(self.drawn):
                axes = figure.add_subplot(rows, min(_PANELS, len(self.drawn)), at + 1)
                _draw(axes, one, above)
            return svg(figure)

    def told(self, links: Links, board: Path) -> str:
        """Return the page: the picture, and a table a curve whose numbers link to their records."""
        blocks = [
            f"# {prose(self.title)}",
            f"[All protocols]({links.url(board)}). `gradleak run {self.name}` makes these records. "
            "A point is a mean with its 95 % interval, hollow where under ten trials.",
            f"![Curves]({self.page}.svg)",
        ]
        for one in self.drawn:
            heads = [prose(one.curve.x), *map(code, one.lines)]
            rows = [
                [_told(x), *(_point(points, x, links) for points in one.lines.values())]
                for x in one.places
            ]
            blocks += [f"**{prose(one.curve.title)}**, {prose(one.unit)}", grid(heads, rows)]
        return "\n\n".join([*blocks, links.definitions()]) + "\n"


def studies(sections: Sequence[Section]) -> list[Study]:
    """Return every suite with curves of which some have points, by name."""
    drawn = {name: curves(suite, sections) for name, suite in read_suites().items()}
    return [Study(name, read_suites()[name].title, own) for name, own in drawn.items() if own]


def _point(points: Mapping[X, Scored], x: X, links: Links) -> str:
    return points[x].bracketed(links) if x in points else DASH


def _told(x: X) -> str:
    return code(x) if isinstance(x, str) else f"{x:g}"


def _words(key: str) -> str:
    """Return the last part of a dotted key as words."""
    return key.rpartition(".")[2].replace("_", " ")


def _draw(axes: Axes, study: Drawn, above: float) -> None:
    """Draw a curve, with so many points above it for the legend, which so covers none of it."""
    places = study.places
    named = any(isinstance(x, str) for x in places)
    colours = cycle(_COLOURS)
    for name, points in study.lines.items():
        own = [x for x in places if x in points]
        scores = [points[x].score for x in own]
        at: list[Any] = [places.index(x) for x in own] if named else own
        colour = INK if name == PRIOR else next(colours)
        means = [score.mean for score in scores]
        line = "" if named else ":" if name == PRIOR else "-"
        style: Any = {"color": colour, "linestyle": line, "linewidth": 1.2}
        axes.plot(at, means, label=name, marker="." if named else None, **style)
        for x, score in zip(at, scores, strict=True):
            face = colour if score.n >= LEAST_TRIALS else "none"
            axes.plot(x, score.mean, "o", color=colour, markerfacecolor=face, markersize=4)
            if score.low is not None and score.high is not None:
                axes.vlines(x, score.low, score.high, color=colour, linewidth=1.2)
    if study.curve.logarithmic and not named:
        axes.set_xscale("log")
    if named:
        names = [str(x).rpartition("/")[2].replace(",", "\n") for x in places]
        long = max(map(len, names)) * len(names) > _FITS
        slanted: Any = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
        axes.set_xticks(range(len(places)), names, **slanted)
    elif len(places) < 8:
        axes.set_xticks([float(x) for x in places], [f"{x:g}" for x in places])
        axes.minorticks_off()
    axes.set_title(study.curve.title, loc="left", fontsize=10, color=INK, pad=above)
    if study.curve.logarithmic_scores:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        axes.yaxis.set_major_locator(LogLocator(subs=(1,) if high > 100 * low else (1, 2, 5)))
        axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        axes.minorticks_off()
    axes.set_xlabel(_words(study.curve.x))
    axes.set_ylabel(study.unit)
    axes.legend(
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        title=_words(study.curve.lines or "attack"),
        title_fontproperties={"size": 8},
        loc="lower left",
        bbox_to_anchor=(0, 1),
        alignment="left",
        borderpad=0,
        borderaxespad=0.4,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=INK, alpha=0.2, linewidth=0.5)
