"""One protocol's records, counted once and ordered for every table of its section."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd

from benchmark import stats
from benchmark.leaderboard.frozen import Frozen
from benchmark.leaderboard.markdown import DASH, NBSP, Links, spread
from benchmark.records import Record, cell_path
from benchmark.stats import Cell

NONE = "none"
"""The defense that does nothing, to which the others are compared."""
VERDICTS = {"not_applicable": "n/a", "unavailable": "unavailable"}


@dataclass(eq=False)
class Part:
    """A protocol's part of the board.

    Attributes:
        records: those made by the protocol as it is frozen.
        stale: how many were made by another version of it.
        links: of the page it is told on.
    """

    results: Path
    frozen: Frozen
    records: Sequence[Record]
    stale: int
    links: Links

    @cached_property
    def frame(self) -> pd.DataFrame:
        """The records as a table."""
        return stats.table(self.records, self.frozen.metrics)

    @cached_property
    def cells(self) -> dict[tuple[str, str], Cell]:
        """Every cell by defense and attack."""
        found = stats.cells(self.frame, self.frozen.metrics, self.frozen.name)
        return {(cell.defense, cell.attack): cell for cell in found}

    @cached_property
    def worst(self) -> dict[str, Cell]:
        """The worst case of each defense that an attack ran against."""
        found = {}
        for name in {cell.defense for cell in self.cells.values()}:
            under = [cell for cell in self.cells.values() if cell.defense == name]
            worst = stats.worst_case(under, self.primary, higher=self.higher)
            if worst is not None:
                found[name] = worst
        return found

    @cached_property
    def defenses(self) -> list[str]:
        """`none` first, then from the one that leaks most."""
        names = {cell.defense for cell in self.cells.values()}
        return sorted(
            names, key=lambda name: (name != NONE, self._leak(self.worst.get(name)), name)
        )

    def attacks(self, *, control: bool) -> list[str]:
        """Return the attacks, or the controls, from the one that sees most without a defense."""
        names = {cell.attack for cell in self.cells.values() if cell.control == control}
        return sorted(names, key=lambda name: (self._leak(self.cells.get((NONE, name))), name))

    def fits(self, attack: str) -> bool:
        """Tell whether an attack fits under any defense; the reasons tell of one that does not."""
        found = [cell for cell in self.cells.values() if cell.attack == attack]
        return any(cell.verdict != "not_applicable" for cell in found)

    @property
    def folder(self) -> Path:
        """Where the protocol's records lie."""
        return self.results / self.frozen.name

    @property
    def track(self) -> str:
        """What the protocol's clients hold, as the field calls it."""
        return str(self.frozen.content.get("track", "other"))

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

    def linked(self, links: Links) -> Part:
        """Return the part for another page; what is counted stays counted."""
        other = copy(self)
        other.links = links
        return other

    def link(self, text: str, defense: str, attack: str) -> str:
        """Return the text as a link to a cell's records, or to the page that shows its text."""
        path = cell_path(self.results, self.frozen.name, defense, attack)
        read = (defense, attack) in self._read
        return self.links.to(text, path.with_suffix(".md") if read else path)

    def shown(self, defense: str, attack: str) -> str:
        """Return a cell of the matrix: `mean ± std (n)`, a verdict, or a dash where none ran."""
        cell = self.cells.get((defense, attack))
        if cell is None:
            return DASH
        score = cell.scores.get(self.primary)
        if score is None:
            return self.link(VERDICTS.get(cell.verdict or "", "unscored"), defense, attack)
        failed = f",{NBSP}{cell.failed}{NBSP}failed" if cell.failed else ""
        text = self.link(f"{spread(score)}<br>({score.n}{failed})", defense, attack)
        return f"**{text}**" if cell is self.worst.get(defense) else text

    @cached_property
    def _read(self) -> set[tuple[str, str]]:
        """The cells with excerpts."""
        return {(one.defense, one.attack) for one in self.records if one.excerpt}

    def _leak(self, cell: Cell | None) -> float:
        """Return a key that sorts the most leaking cell first and an unscored one last."""
        score = cell.scores.get(self.primary) if cell else None
        if score is None:
            return float("inf")
        return -score.mean if self.higher else score.mean


def parts(results: Path, records: Iterable[Record], links: Links) -> list[Part]:
    """Return a part for each protocol with records, by track and name.

    Raises:
        RecordError: a protocol's frozen file is missing or malformed.
    """
    by_name: dict[str, list[Record]] = {}
    for record in records:
        by_name.setdefault(record.protocol, []).append(record)
    found = []
    for name, all_of_it in by_name.items():
        frozen = Frozen.read(results, name)
        kept = [record for record in all_of_it if record.protocol_digest == frozen.digest]
        found.append(Part(results, frozen, kept, len(all_of_it) - len(kept), links))
    return sorted(found, key=lambda p: (p.track, p.frozen.name))
