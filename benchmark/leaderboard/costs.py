"""What a defense costs and what it hides, in one row: a table and a picture a utility protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes

from benchmark.leaderboard.markdown import DASH, NBSP, Links, code, grid, mean, prose
from benchmark.leaderboard.page import MARKS
from benchmark.leaderboard.picture import COLOURS, INK, drawing, svg
from benchmark.leaderboard.section import NONE, Section
from benchmark.prices import Price, Prices
from benchmark.protocol import UtilityProtocol, load_utility, utility_files

_INCHES = (9.0, 4.4)
_NEAR = 25  # dots nearer than the width over this share a label
_MEGABYTE = 2**20


@dataclass(frozen=True)
class Costs:
    """The prices of a utility protocol.

    Attributes:
        prices: by defense, the one that does nothing first, then from the least costly.
        section: of the protocol whose worst cases stand beside them, where it has records.
    """

    protocol: UtilityProtocol
    prices: dict[str, list[Price]]
    section: Section | None

    @property
    def page(self) -> str:
        """Name of its page and of its picture, less what they end in."""
        return f"price_{self.protocol.name}"

    def accuracy(self, defense: str) -> list[float]:
        """Return a defense's accuracies in percent, a seed each."""
        return [100 * one.accuracy for one in self.prices[defense] if one.accuracy is not None]

    @cached_property
    def plain(self) -> float | None:
        """Mean accuracy in percent where nothing defends."""
        found = self.accuracy(NONE) if NONE in self.prices else []
        return fmean(found) if found else None

    def told(self, links: Links, board: Path, file: Path) -> str:
        """Return the page: setting, table, picture and what they say.

        Args:
            links: of the page.
            board: the board it belongs to.
            file: of the prices.
        """
        training, head = self.protocol.training, prose(self.protocol.title)
        setting = (
            f"{prose(self.protocol.description)} {training.rounds} rounds; the rate of the server "
            f"is the one of {len(training.rates)} that does best, over all seeds, on a held-out "
            f"{training.held_out:.0%} of the public split, for each defense its own. Accuracy is "
            "that of the private split, mean ± standard deviation over seeds."
        )
        if self.protocol.shuffled_by is not None:
            setting += (
                " Consistency is the share of private images whose label stays when "
                f"{code(self.protocol.shuffled_by)} shuffles them."
            )
        blocks = [
            f"# What defenses cost: {head}",
            f"[The board]({links.url(board)}) · {links.to('the records', file)}, by "
            f"`gradleak utility {self.protocol.name}`",
            setting,
            self.table(links),
            self.sentence(),
            *([f"![Accuracy by worst case]({self.page}.svg)"] if self.section else []),
        ]
        return "\n\n".join([*blocks, links.definitions()]) + "\n"

    def table(self, links: Links) -> str:
        """Return a row a defense: what is read behind it, accuracy, epsilon, seconds, bytes."""
        rows = []
        for name, prices in self.prices.items():
            first = prices[0]
            rows.append(
                [
                    code(name),
                    self._worst(name, links),
                    self._accuracy(name),
                    self._lost(name),
                    *([self._consistency(name)] if self.protocol.shuffled_by else []),
                    _epsilon(first),
                    f"{fmean(one.seconds for one in prices):.0f}",
                    f"{first.sent / _MEGABYTE:.1f}",
                ]
            )
        unit = self.section.unit if self.section else "worst case"
        where = prose(self.protocol.leakage)
        headers = ["Defense", f"Worst case in {where}, {prose(unit)}", "Accuracy, %", "Lost"]
        shuffled = ["Consistency, %"] if self.protocol.shuffled_by else []
        return grid([*headers, *shuffled, "Epsilon", "Seconds", "MiB sent"], rows)

    def sentence(self) -> str:
        """Return what holds, and what the least costly of it costs."""
        plain = self.plain
        if self.section is None or plain is None:
            return "No worst case is recorded beside these prices."
        holding = [n for n in self.prices if n != NONE and self._outcome(n) == "holds"]
        priced = [n for n in holding if self.accuracy(n)]
        tried = sum(self._outcome(n) is not None for n in self.prices if n != NONE)
        said = f"Of {tried} defenses that attacks met here, {len(holding)} hold"
        if not priced:
            return f"{said}."
        least = max(priced, key=lambda n: fmean(self.accuracy(n)))
        lost = plain - fmean(self.accuracy(least))
        doubt = "" if self.section.reliable(least) else ", against no attack that knows it"
        return f"{said}; the least costly of them, {code(least)}, loses {lost:.1f} points{doubt}."

    def pictured(self) -> str:
        """Return accuracy over the worst case, a dot a defense, as SVG."""
        with drawing(_INCHES) as figure:
            axes = figure.add_subplot()
            self._draw(axes)
            return svg(figure)

    def _draw(self, axes: Axes) -> None:
        """Draw a dot a defense, numbered as beside it; those that coincide share their numbers."""
        assert self.section is not None
        dots: list[tuple[float, float, str]] = []
        for name in self.prices:
            cell, right = self.section.worst.get(name), self.accuracy(name)
            if cell is not None and right:
                dots.append((cell.scores[self.section.primary].mean, fmean(right), name))
        reach = max((x for x, _, _ in dots), default=1.0)
        numbers: dict[tuple[int, int], list[int]] = {}
        for number, (x, y, name) in enumerate(dots, start=1):
            colour = COLOURS[self.section.outcome(name)]
            axes.plot(x, y, "o", color=colour, markersize=5, label=f"{number}  {name}")
            numbers.setdefault((round(_NEAR * x / reach), round(y / 4)), []).append(number)
        for same in numbers.values():
            x, y, _ = dots[same[0] - 1]
            text = ", ".join(map(str, same))
            axes.annotate(text, (x, y), xytext=(4, 4), textcoords="offset points", fontsize=7)
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=7, labelcolor=INK
        )
        worse = "right" if self.section.higher else "left"
        axes.set_xlabel(f"worst case, {self.section.unit}; {worse} is worse for the client")
        axes.set_ylabel("accuracy, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=INK, alpha=0.2, linewidth=0.5)

    def _outcome(self, name: str) -> str | None:
        if self.section is None or name not in self.section.worst:
            return None
        return self.section.outcome(name)

    def _worst(self, name: str, links: Links) -> str:
        cell = None if self.section is None else self.section.worst.get(name)
        if cell is None or self.section is None:
            return DASH
        score = links.to(mean(cell.scores[self.section.primary]), self.section.file(cell.attack))
        return f"{MARKS[self.section.outcome(name)]}{NBSP}{score}"

    def _accuracy(self, name: str) -> str:
        right = self.accuracy(name)
        if not right:
            return f"n/a: {prose(self.prices[name][0].reason or 'no reason given')}"
        spread = f"{NBSP}±{NBSP}{stdev(right):.1f}" if len(right) > 1 else ""
        return f"{fmean(right):.1f}{spread}"

    def _consistency(self, name: str) -> str:
        found = [
            100 * one.diagnostics["consistency"] for one in self.prices[name] if one.diagnostics
        ]
        return f"{fmean(found):.1f}" if found else DASH

    def _lost(self, name: str) -> str:
        right = self.accuracy(name)
        if self.plain is None or not right or name == NONE:
            return DASH
        return f"{self.plain - fmean(right):.1f}"


def costs(results: Path, sections: Sequence[Section]) -> list[Costs]:
    """Return the prices of every utility protocol as it is now, by name; others are left out."""
    known = {section.name: section for section in sections if section.summaries}
    found = Prices(results).found.values()
    made = []
    for name in sorted(utility_files()):
        protocol = load_utility(name)
        own = [one for one in found if (one.protocol, one.digest) == (name, protocol.digest)]
        if own:
            made.append(Costs(protocol, _by_defense(own), known.get(protocol.leakage)))
    return made


def _by_defense(found: Iterable[Price]) -> dict[str, list[Price]]:
    prices: dict[str, list[Price]] = {}
    for one in found:
        prices.setdefault(one.defense, []).append(one)

    def key(name: str) -> tuple[bool, float, str]:
        right = [one.accuracy for one in prices[name] if one.accuracy is not None]
        return name != NONE, -fmean(right) if right else 1.0, name

    return {name: prices[name] for name in sorted(prices, key=key)}


def _epsilon(price: Price) -> str:
    found = price.description.get("epsilon")
    return f"{found:.1f}" if isinstance(found, int | float) else "no epsilon"
