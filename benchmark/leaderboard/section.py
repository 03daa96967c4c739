"""One protocol's records, counted once and ordered for every table that tells of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import pandas as pd

from benchmark import records, stats
from benchmark.attestations import Doubt
from benchmark.leaderboard.frozen import Frozen
from benchmark.leaderboard.given import Given
from benchmark.leaderboard.ranking import Ranking, ranking, trials
from benchmark.leaderboard.rates import Rates
from benchmark.leaderboard.verified import Held, held
from benchmark.metrics import OF_INPUT
from benchmark.stats import LEAST_TRIALS, CellSummary, Estimate
from benchmark.tunings import Tunings

NONE = "none"
"""The defense that does nothing, to which the others are compared."""
Outcome = Literal["leaks", "holds", "open"]
Claim = Literal["self-reported", "flagged"]
"""Why an attack's records are its author's word alone."""
Doubts = Mapping[Doubt, Mapping[str, int]]
"""How many records of each attack are in doubt."""
DOUBTS: dict[Doubt, str] = {
    "outdated": "of an older version, due again: `gradleak run` makes them anew",
    "unverified": "unverified: code they rest on has changed since, under the same version",
}
"""What is the matter with such records."""


@dataclass(eq=False)
class Section:
    """A protocol's part of the board.

    Attributes:
        frame: its rows, judged: those made by the protocol as it is frozen.
        summaries: the cells of these rows.
        stale: how many rows were made by another version of it.
        given: what each attack was given, by label.
        doubts: how many of its rows, by attack, are outdated, and how many unverified.
        tunings: of its searches' rates.
        held: its cells that verified runs were held against.
    """

    results: Path
    frozen: Frozen
    frame: pd.DataFrame
    summaries: Sequence[CellSummary]
    stale: int
    given: Mapping[str, Given]
    doubts: Doubts
    tunings: Tunings
    held: Sequence[Held] = ()

    @cached_property
    def claims(self) -> dict[str, Claim]:
        """The attacks whose numbers are told, and count for no rank and no worst case.

        Flagged is what reads more of public trials than of canaries. What is not the repository's
        own is self-reported, until a verified run of its very source bears out all its cells.
        """
        found: dict[str, Claim] = {}
        for attack in {cell.attack for cell in self.summaries if not cell.control}:
            mine = [one for one in self.held if one.attack == attack]
            borne = {one.defense for one in mine if one.judged and not one.moved}
            ran = {cell.defense for cell in self.summaries if cell.attack == attack and cell.n}
            if any(one.flagged for one in mine):
                found[attack] = "flagged"
            elif not self.given[attack].own and ran - borne:
                found[attack] = "self-reported"
        return found

    @cached_property
    def dirty(self) -> dict[str, int]:
        """How many records of an attack were made from code that no commit holds."""
        rows = self.frame.loc[self.frame["dirty"].fillna(False).astype(bool), "attack"]
        return {str(name): int(count) for name, count in rows.value_counts().items() if count}

    @cached_property
    def _counted(self) -> list[CellSummary]:
        return [cell for cell in self.summaries if cell.attack not in self.claims]

    @cached_property
    def cells(self) -> dict[tuple[str, str], CellSummary]:
        """Every cell by defense and attack."""
        return {(cell.defense, cell.attack): cell for cell in self.summaries}

    @cached_property
    def worst(self) -> dict[str, CellSummary]:
        """The worst case of each defense that an attack ran against."""
        found = {}
        for name in {cell.defense for cell in self.summaries}:
            under = [cell for cell in self._counted if cell.defense == name]
            worst = stats.worst_case(under, self.primary, higher=self.higher)
            if worst is not None:
                found[name] = worst
        return found

    @cached_property
    def defenses(self) -> list[str]:
        """`none` first, then from the one that leaks most."""
        names = {cell.defense for cell in self.summaries}
        return sorted(
            names, key=lambda name: (name != NONE, self._leak(self.worst.get(name)), name)
        )

    def attacks(self, *, control: bool) -> list[str]:
        """Return what fits under some defense, from the one that sees most without a defense."""
        names = {
            cell.attack
            for cell in self.summaries
            if cell.control == control and cell.verdict != "not_applicable"
        }
        return sorted(names, key=lambda name: (self._leak(self.cells.get((NONE, name))), name))

    def outcome(self, defense: str) -> Outcome:
        """Tell whether a defense holds: what its attacks' leads over the prior alone say.

        It leaks where the interval of one lies above the margin. It holds where those of all lie
        below, an attack among them had its paper's budget, and none of under ten trials has a
        mean above. Otherwise it is open.
        """
        under = [cell for cell in self._counted if cell.defense == defense and not cell.control]
        leads = {cell.attack: cell.lead for cell in under if cell.lead is not None}
        if any(lead.low is not None and lead.low > self.margin for lead in leads.values()):
            return "leaks"
        below = all(self._top(lead) <= self.margin for lead in leads.values())
        tried = [name for name, lead in leads.items() if lead.high is not None]
        full = [name for name in tried if not self.reduced(name)]
        return "holds" if below and full else "open"

    def adaptive(self, defense: str) -> CellSummary | None:
        """Return the cell of the strongest attack that knows how to meet a defense, if one ran."""
        name = defense.partition(",")[0]
        known = [
            cell
            for cell in self._counted
            if cell.defense == defense and name in self.given[cell.attack].adaptive_to
        ]
        return stats.worst_case(known, self.primary, higher=self.higher)

    def reliable(self, defense: str) -> bool:
        """Tell whether a defense's worst case is by an attack that knows it, or near such a one.

        Without an attack that knows the defense, or where that attack sees less than one that does
        not, what the defense hides from those that were tried says little of what it hides.
        """
        known, worst = self.adaptive(defense), self.worst.get(defense)
        if known is None or worst is None:
            return False
        behind = worst.scores[self.primary].mean - known.scores[self.primary].mean
        return abs(behind) <= self.margin

    @property
    def margin(self) -> float:
        """The lead over the prior alone, in the primary's unit, that counts as a leak."""
        return stats.margin(self.frozen.primary.unit)

    def spent(self, attack: str) -> int | None:
        """Return the most gradients that an attack spent on one trial; None where unknown."""
        counts = [cell.gradients for cell in self.summaries if cell.attack == attack]
        return max((count for count in counts if count is not None), default=None)

    def in_paper(self, attack: str) -> int | None:
        """Return the gradients that the attack's paper spends on a trial, where it is known."""
        data = self.frozen.content.get("data")
        return self.given[attack].in_paper(str(data.get("name")) if isinstance(data, dict) else "")

    def share(self, attack: str) -> float | None:
        """Return what an attack spent as a share of its paper's gradients, where both are known."""
        spent, full = self.spent(attack), self.in_paper(attack)
        return spent / full if spent and full else None

    def reduced(self, attack: str) -> bool:
        """Tell whether an attack spent less than its paper does: its score is not its own."""
        share = self.share(attack)
        return share is not None and share < 1

    @cached_property
    def rates(self) -> Rates:
        """The rates of the searches."""
        return Rates(self.given, self.tunings)

    def superseded(self, attack: str) -> bool:
        """Tell whether an attack's rate was tuned, it ran at another, and ten trials at that."""
        return self.rates.superseded(attack, self._ranked_alone)

    @cached_property
    def _ranked_alone(self) -> set[str]:
        return {cell.attack for cell in self.summaries if cell.n >= LEAST_TRIALS}

    @cached_property
    def undefended(self) -> Ranking:
        """The attacks ranked where nothing defends."""
        ran = [name for name in self._trials.columns if self._ran(NONE, str(name))]
        return self._ranking(self._trials.loc[self._trials.index.isin([NONE], level=0), ran])

    @cached_property
    def overall(self) -> Ranking:
        """The attacks ranked by their mean over all defenses."""
        return self._ranking(self._trials)

    def score(self, defense: str, attack: str, metric: str | None = None) -> Estimate | None:
        """Return a cell's score, of the primary metric unless another is named."""
        cell = self.cells.get((defense, attack))
        return None if cell is None else cell.scores.get(metric or self.primary)

    def file(self, attack: str) -> Path:
        """Return where an attack's records lie."""
        return self._files[attack]

    @cached_property
    def _files(self) -> dict[str, Path]:
        attacks = {cell.attack for cell in self.summaries}
        return {each: records.file_of(self.results, self.name, each) for each in sorted(attacks)}

    @property
    def folder(self) -> Path:
        """Where the protocol's records lie."""
        return self.results / self.frozen.name

    @property
    def name(self) -> str:
        """The protocol's name."""
        return self.frozen.name

    @property
    def track(self) -> str:
        """What the protocol's clients hold, as the field calls it."""
        return str(self.frozen.content.get("track", "other"))

    @property
    def threat(self) -> str:
        """The threat model's words; empty without records."""
        return str(self.frame["threat"].iloc[-1]) if len(self.frame) else ""

    @property
    def primary(self) -> str:
        """Name of the metric of the matrix and the ranking."""
        return self.frozen.primary.name

    @property
    def higher(self) -> bool:
        """Whether a higher number is the better attack."""
        return self.frozen.primary.better == "higher"

    @property
    def unit(self) -> str:
        """Name and unit of the primary metric."""
        return self.frozen.units[self.primary]

    @cached_property
    def _trials(self) -> pd.DataFrame:
        return trials(self.frame)

    def _ran(self, defense: str, attack: str) -> bool:
        cell = self.cells.get((defense, attack))
        return cell is not None and cell.n > 0

    def _ranking(self, scores: pd.DataFrame) -> Ranking:
        contenders = self.attacks(control=False)
        aside = [name for name in contenders if self.reduced(name) or self.superseded(name)]
        aside += [*self.claims, *self.dirty]
        return ranking(scores, higher=self.higher, aside=aside)

    def _top(self, lead: Estimate) -> float:
        return lead.mean if lead.high is None else lead.high

    def _leak(self, cell: CellSummary | None) -> float:
        """Return a key that sorts the most leaking cell first and an unscored one last."""
        score = cell.scores.get(self.primary) if cell else None
        if score is None:
            return float("inf")
        return -score.mean if self.higher else score.mean


def sections(
    results: Path,
    frame: pd.DataFrame,
    given: Mapping[str, Given],
    count: Callable[[pd.DataFrame], Doubts],
    runs: Sequence[Path] = (),
) -> list[Section]:
    """Return a section for each protocol with records, by track and name.

    Args:
        results: folder of the records.
        frame: the table of all of them.
        given: what each attack was given, by label.
        count: counts those of one protocol that are in doubt.
        runs: folders of verified runs.

    Raises:
        RecordError: a protocol's frozen file is missing or malformed.
    """
    names = sorted(map(str, frame["protocol"].unique()))
    frozen = {name: Frozen.read(results, name) for name in names}
    digests = frame["protocol"].astype(str).map({name: frozen[name].digest for name in names})
    current = frame["protocol_digest"].astype(str) == digests
    stale = frame.loc[~current, "protocol"].astype(str).value_counts()
    metrics = list(dict.fromkeys(metric for each in frozen.values() for metric in each.metrics))
    missing = {metric: float("nan") for metric in metrics if metric not in frame}
    kept = stats.tidy(frame[current].assign(**missing))
    kept = stats.judged(kept, {name: each.scale for name, each in frozen.items()})
    rows = dict.fromkeys(names, kept.iloc[:0])
    rows |= {str(name): own for name, own in kept.groupby("protocol", observed=True)}
    summaries: dict[str, list[CellSummary]] = {name: [] for name in names}
    of_input = [f"{metric}{OF_INPUT}" for metric in metrics]
    for cell in stats.cells(kept, [*metrics, *(one for one in of_input if one in kept)]):
        summaries[cell.protocol].append(cell)
    verified = held(frame, frozen, runs)
    found = [
        Section(
            results,
            frozen[name],
            rows[name],
            summaries[name],
            int(stale.get(name, 0)),
            given,
            count(rows[name]),
            Tunings.read(results, name),
            [one for one in verified if one.protocol == name],
        )
        for name in names
    ]
    return sorted(found, key=lambda section: (section.track, section.name))


def labels(frame: pd.DataFrame) -> Iterable[str]:
    """Return every attack of a table."""
    return sorted(map(str, frame["attack"].unique()))
