"""What a defense costs and what it hides, in one row: a table and a picture a utility protocol."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev

from benchmark.leaderboard.figures import FIGURES, Figure
from benchmark.leaderboard.groups import method
from benchmark.leaderboard.holding import Lost
from benchmark.leaderboard.markdown import DASH, NBSP, Links, code, grid, mean, prose
from benchmark.leaderboard.page import MARKS
from benchmark.leaderboard.picture import COLOURS
from benchmark.leaderboard.price_picture import Dot, picture
from benchmark.leaderboard.section import NONE, Outcome, Section
from benchmark.prices import Price, Prices, prices_file
from benchmark.protocol import UtilityProtocol, VisionUtility, load_utility, utility_files

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

    @property
    def figure(self) -> Figure:
        """What its prices are told in."""
        return FIGURES[self.protocol.track]

    def figures(self, defense: str) -> list[float]:
        """Return a defense's accuracies in percent, or its perplexities, a seed each."""
        found = (one.figure for one in self.prices[defense])
        return [self.figure.scale * one for one in found if one is not None]

    def loss(self, defense: str) -> float | None:
        """Return what a defense costs in its figure, over the seeds that both ran with."""
        held, plain = (
            {one.seed: one.figure for one in self.prices.get(name, ())} for name in (defense, NONE)
        )
        both = [
            self.figure.lost(undefended, found)
            for seed, found in held.items()
            if found is not None and (undefended := plain.get(seed)) is not None
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
            f"{training.held_out:.0%} of the public split, for each defense its own, or one beyond "
            "where the lowest or the highest does best, or the next lower one where it diverges. "
            f"{self.figure.meaning} of the private split, mean ± "
            f"standard deviation over seeds; what is {self.figure.cost.lower()} is told over the "
            "seeds that both ran with. Slowdown is a client's processor time in a round, as a "
            "multiple of that of one without a defense, both measured in turn."
        )
        if self._shuffler is not None:
            setting += (
                " Consistency is the share of private images whose label stays when "
                f"{code(self._shuffler)} shuffles them."
            )
        deltas = {one.description.get("delta") for own in self.prices.values() for one in own}
        if told := sorted(one for one in deltas if isinstance(one, float)):
            setting += f" Epsilon is at a delta of {' or '.join(map(str, told))}."
        blocks = [
            f"# What defenses cost: {head}",
            f"[The board]({links.url(board)}) · {links.to('the records', file)}, by "
            f"`gradleak utility {self.protocol.name}`",
            setting,
            self.table(links),
            self.sentence(),
            *(
                [f"![{self.figure.name.capitalize()} by worst case]({self.page}.svg)"]
                if self.sections
                else []
            ),
        ]
        return "\n\n".join([*blocks, links.definitions()]) + "\n"

    def table(self, links: Links) -> str:
        """Return a row a defense: what is read behind it, figure, epsilon, time, bytes."""
        rows = []
        for name, prices in self.prices.items():
            first = prices[0]
            rows.append(
                [
                    code(name),
                    self._worst(name, links),
                    self._figure(name),
                    self.lost(name),
                    *([self._consistency(name)] if self._shuffler else []),
                    self._epsilon(first),
                    _slowdown(prices),
                    f"{first.sent / _MEGABYTE:.1f}",
                ]
            )
        unit = f", {prose(self.sections[0].unit)}" if self.sections else ""
        headers = ["Defense", f"Worst case{unit}", self.figure.column, self.figure.cost]
        shuffled = ["Consistency, %"] if self._shuffler else []
        return grid([*headers, *shuffled, "Epsilon", "Slowdown", "MiB sent"], rows)

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
        spent = f"{self.figure.verb} {costs[least]:.1f} {self.figure.spent}"
        if len(holding) == 1:
            return f"{said}: {code(least)} {spent}{doubt}."
        return f"{said}; the least costly of them, {code(least)}, {spent}{doubt}."

    def pictured(self) -> str:
        """Return the figure over the worst case, a dot a defense, as SVG."""
        dots = [
            Dot(_score(met, name), fmean(found), name, COLOURS[self._outcome(name) or "open"])
            for name in self.prices
            if (met := self._met(name)) is not None and (found := self.figures(name))
        ]
        first = self.sections[0]
        worse = "right" if first.higher else "left"
        worst = f"worst case, {first.unit}; {worse} is worse for the client"
        return picture(dots, worst, self.figure)

    @property
    def _shuffler(self) -> str | None:
        """The defense that shuffles images, where the protocol states one."""
        return self.protocol.shuffled_by if isinstance(self.protocol, VisionUtility) else None

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

    def _figure(self, name: str) -> str:
        found = self.figures(name)
        if not found:
            return f"n/a: {prose(self.prices[name][0].reason or 'no reason given')}"
        spread = f"{NBSP}±{NBSP}{stdev(found):.1f}" if len(found) > 1 else ""
        return f"{fmean(found):.1f}{spread}"

    def _consistency(self, name: str) -> str:
        found = [
            100 * one.diagnostics["consistency"] for one in self.prices[name] if one.diagnostics
        ]
        return f"{fmean(found):.1f}" if found else DASH

    def _epsilon(self, price: Price) -> str:
        found = price.description.get("epsilon")
        if not isinstance(found, int | float):
            return "no epsilon"
        rounds = price.description.get("rounds", self.protocol.training.rounds)
        of_another = "" if rounds == self.protocol.training.rounds else f" of {rounds} rounds"
        return f"{found:.1f}{of_another}"

    def lost(self, name: str) -> str:
        """Return what a defense costs in its figure; a dash where it is not measured."""
        loss = None if name == NONE else self.loss(name)
        return DASH if loss is None else f"{loss:z.1f}"


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
            made.append(Costs(protocol, _by_defense(own, FIGURES[protocol.track]), alike))
    return made


def _score(section: Section, defense: str) -> float:
    """Return a defense's worst case in a protocol."""
    return section.worst[defense].scores[section.primary].mean


def losses(priced: Sequence[Costs], results: Path) -> Lost:
    """Return what tells a defense's cost, by the first protocol of the track with its price."""
    found: dict[tuple[str, str], str] = {}
    for one in priced:
        for name in one.prices:
            found.setdefault((one.protocol.track, name), one.lost(name))

    def told(track: str, name: str, links: Links) -> str:
        cost = found.get((track, name), DASH)
        return cost if cost == DASH else links.to(cost, prices_file(results))

    return told


def _by_defense(found: Iterable[Price], figure: Figure) -> dict[str, list[Price]]:
    prices: dict[str, list[Price]] = {}
    for one in found:
        prices.setdefault(one.defense, []).append(one)

    def key(name: str) -> tuple[bool, float, str]:
        told = [one.figure for one in prices[name] if one.figure is not None]
        cost = figure.lost(0, fmean(told)) if told else math.inf
        return name != NONE, cost, name

    return {name: prices[name] for name in sorted(prices, key=key)}


def _slowdown(prices: Iterable[Price]) -> str:
    found = [one.slowdown for one in prices if one.slowdown is not None]
    return f"{fmean(found):.1f}" if found else DASH
