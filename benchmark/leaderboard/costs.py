"""What a defense costs and what it hides, in one row: a table and a picture a utility protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from matplotlib.axes import Axes

from benchmark.leaderboard.groups import method
from benchmark.leaderboard.markdown import DASH, NBSP, Links, code, grid, mean, prose
from benchmark.leaderboard.page import MARKS
from benchmark.leaderboard.picture import COLOURS, INK, drawing, svg
from benchmark.leaderboard.section import NONE, Outcome, Section
from benchmark.prices import Price, Prices, prices_file
from benchmark.protocol import UtilityProtocol, load_utility, utility_files

_INCHES = (9.0, 4.4)
_COLUMNS, _ROWS = 36, 22  # of numbers that find room beside one another
_AROUND = sorted(
    ((right, up) for right in range(-3, 4) for up in range(-3, 4)),
    key=lambda step: (step[0] ** 2 + step[1] ** 2, -step[1], -step[0]),
)
"""Places round a dot, in numbers' widths and heights, nearest first."""
_MEGABYTE = 2**20


@dataclass(frozen=True)
class Costs:
    """The prices of a utility protocol.

    Attributes:
        prices: by defense, the one that does nothing first, then from the least costly.
        sections: of the protocols whose worst cases stand beside them, where they have records.
    """

    protocol: UtilityProtocol
    prices: dict[str, list[Price]]
    sections: Sequence[Section]

    @property
    def page(self) -> str:
        """Name of its page and of its picture, less what they end in."""
        return f"price_{self.protocol.name}"

    def accuracy(self, defense: str) -> list[float]:
        """Return a defense's accuracies in percent, a seed each."""
        return [100 * one.accuracy for one in self.prices[defense] if one.accuracy is not None]

    def loss(self, defense: str) -> float | None:
        """Return the points of accuracy that a defense costs, over the seeds that both ran with."""
        held, plain = (
            {one.seed: one.accuracy for one in self.prices.get(name, ())}
            for name in (defense, NONE)
        )
        both = [
            100 * (undefended - accuracy)
            for seed, accuracy in held.items()
            if accuracy is not None and (undefended := plain.get(seed)) is not None
        ]
        return fmean(both) if both else None

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
            f"{training.held_out:.0%} of the public split, for each defense its own, or the next "
            "lower one where that diverges. Accuracy is that of the private split, mean ± standard "
            "deviation over seeds; what is lost is told over the seeds that both ran with."
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
            *([f"![Accuracy by worst case]({self.page}.svg)"] if self.sections else []),
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
                    self.lost(name),
                    *([self._consistency(name)] if self.protocol.shuffled_by else []),
                    _epsilon(first),
                    f"{fmean(one.seconds for one in prices):.0f}",
                    f"{first.sent / _MEGABYTE:.1f}",
                ]
            )
        unit = f", {prose(self.sections[0].unit)}" if self.sections else ""
        headers = ["Defense", f"Worst case{unit}", "Accuracy, %", "Lost"]
        shuffled = ["Consistency, %"] if self.protocol.shuffled_by else []
        return grid([*headers, *shuffled, "Epsilon", "Seconds", "MiB sent"], rows)

    def sentence(self) -> str:
        """Return what holds, and what the least costly of it costs."""
        if not self.sections or NONE not in self.prices:
            return "No worst case is recorded beside these prices."
        holding = [n for n in self.prices if n != NONE and self._outcome(n) == "holds"]
        tried = sum(self._outcome(n) is not None for n in self.prices if n != NONE)
        met_here = "the one defense" if tried == 1 else f"{tried} defenses"
        verb = "holds" if len(holding) < 2 else "hold"
        said = f"Of {met_here} that attacks met here, {len(holding) or 'nothing'} {verb}"
        costs = {name: loss for name in holding if (loss := self.loss(name)) is not None}
        if not costs:
            return f"{said}."
        least = min(costs, key=lambda name: costs[name])
        met = self._met(least)
        known = met is not None and met.reliable(least)
        doubt = "" if known else ", against no attack that knows it"
        lost = f"loses {costs[least]:.1f} points{doubt}"
        return f"{said}; the least costly of them, {code(least)}, {lost}."

    def pictured(self) -> str:
        """Return accuracy over the worst case, a dot a defense, as SVG."""
        with drawing(_INCHES) as figure:
            axes = figure.add_subplot()
            self._draw(axes)
            return svg(figure)

    def _draw(self, axes: Axes) -> None:
        """Draw a dot a defense, numbered from left to right as beside it."""
        dots: list[tuple[float, float, str]] = []
        for name in self.prices:
            met, right = self._met(name), self.accuracy(name)
            if met is not None and right:
                dots.append((_score(met, name), fmean(right), name))
        dots.sort()
        for number, (x, y, name) in enumerate(dots, start=1):
            colour = COLOURS[self._outcome(name) or "open"]
            axes.plot(x, y, "o", color=colour, markersize=5, label=f"{number}  {name}")
        for number, place in enumerate(_beside([(x, y) for x, y, _ in dots]), start=1):
            axes.text(*place, str(number), ha="center", va="center", fontsize=7)
        axes.margins(y=0.15)
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=7, labelcolor=INK
        )
        first = self.sections[0]
        worse = "right" if first.higher else "left"
        axes.set_xlabel(f"worst case, {first.unit}; {worse} is worse for the client")
        axes.set_ylabel("accuracy, %")
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color=INK, alpha=0.2, linewidth=0.5)

    def _met(self, name: str) -> Section | None:
        """Return where a defense's worst case stands, of the protocols that it ran in."""
        met = [section for section in self.sections if name in section.worst]
        sign = 1 if met and met[0].higher else -1
        return max(met, key=lambda section: sign * _score(section, name), default=None)

    def _outcome(self, name: str) -> Outcome | None:
        """Tell what became of a defense: it holds where it does in all protocols it ran in."""
        told = {section.outcome(name) for section in self.sections if name in section.worst}
        if not told:
            return None
        return "leaks" if "leaks" in told else "open" if "open" in told else "holds"

    def _worst(self, name: str, links: Links) -> str:
        met, outcome = self._met(name), self._outcome(name)
        if met is None or outcome is None:
            return DASH
        cell = met.worst[name]
        score = links.to(mean(cell.scores[met.primary]), met.file(cell.attack))
        return f"{MARKS[outcome]}{NBSP}{score} {code(method(cell.attack))}"

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

    def lost(self, name: str) -> str:
        """Return the points of accuracy that a defense costs; a dash where it is not measured."""
        loss = None if name == NONE else self.loss(name)
        return DASH if loss is None else f"{loss + 0.0:.1f}"


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


def costs(results: Path, sections: Sequence[Section]) -> list[Costs]:
    """Return the prices of every utility protocol as it is now, by name; others are left out."""
    known = {section.name: section for section in sections if section.summaries}
    found = Prices(results).found.values()
    made = []
    for name in sorted(utility_files()):
        protocol = load_utility(name)
        own = [one for one in found if (one.protocol, one.digest) == (name, protocol.digest)]
        if own:
            beside = [known[each] for each in protocol.leakage if each in known]
            alike = [each for each in beside if each.primary == beside[0].primary]
            made.append(Costs(protocol, _by_defense(own), alike))
    return made


def _score(section: Section, defense: str) -> float:
    """Return a defense's worst case in a protocol."""
    return section.worst[defense].scores[section.primary].mean


def losses(priced: Sequence[Costs], results: Path) -> Callable[[str, Links], str]:
    """Return what tells a defense's cost in accuracy, by the first protocol that has its price."""
    found: dict[str, str] = {}
    for one in priced:
        for name in one.prices:
            found.setdefault(name, one.lost(name))

    def told(name: str, links: Links) -> str:
        points = found.get(name, DASH)
        return points if points == DASH else links.to(points, prices_file(results))

    return told


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
