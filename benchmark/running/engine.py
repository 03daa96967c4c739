"""Where the cells of a run are made: in this process, in several, or on a cluster.

An engine is given cells and gives back their stacks as they are made; a run's driver alone writes
records. On the same hardware and number of threads all make the same records, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol as Interface

from benchmark.cell import Cell
from benchmark.errors import BenchmarkError
from benchmark.running.making import Broken, Made, Maker

_MOST_DEATHS = 3


@dataclass(frozen=True)
class Ended:
    """A cell is complete, or given up because the processes that made it died."""

    lost: str | None = None


class Engine(Interface):
    """Where cells are made."""

    @property
    def width(self) -> int:
        """Cells that are made at a time."""

    @property
    def ahead(self) -> int:
        """Cells that may wait besides."""

    @property
    def rounds(self) -> int:
        """Rounds that are best made beside one another: one for each process that chooses cells."""

    def start(self, cell: Cell, trials: Sequence[int]) -> None:
        """Take on the trials of a cell."""

    def take(self) -> tuple[Cell, Made | Ended]:
        """Wait for the next stack of any cell, or for the end of one.

        Raises:
            BenchmarkError: a cell cannot be made here.
        """


class Inline:
    """Makes cells in this process, one after the other."""

    width, ahead, rounds = 1, 0, 1

    def __init__(self, maker: Maker) -> None:
        self._maker = maker
        self._made: tuple[Cell, Iterator[Made]]

    def start(self, cell: Cell, trials: Sequence[int]) -> None:
        """Take on the trials of a cell."""
        self._made = cell, self._maker.make(cell, trials)

    def take(self) -> tuple[Cell, Made | Ended]:
        """Make the next stack."""
        cell, stacks = self._made
        return cell, next(stacks, Ended())


class Task:
    """A cell that is made in another process, which may die.

    Attributes:
        memory: bytes that the process may take.
        left: the trials that have not come back.
    """

    def __init__(self, cell: Cell, trials: Sequence[int], memory: int = 0) -> None:
        self.cell, self.left, self.memory = cell, list(trials), memory
        self._deaths = 0

    def came(self, said: Made | Broken) -> Made:
        """Take a stack off what is left.

        Raises:
            BenchmarkError: what came is no stack, but why there is none.
        """
        if isinstance(said, Broken):
            raise BenchmarkError(said.said) if said.bad_input else RuntimeError(said.said)
        done = {record.trial for record in said.records}
        self.left = [] if None in done else [trial for trial in self.left if trial not in done]
        self._deaths = 0
        return said

    def died(self, how: str) -> Ended | None:
        """Count a death; None where what is left is to be made again, in another process."""
        self._deaths += 1
        if not self.left:
            return Ended()
        if self._deaths < _MOST_DEATHS:
            return None
        return Ended(f"{how}, {_MOST_DEATHS} times in a row; it is due still")
