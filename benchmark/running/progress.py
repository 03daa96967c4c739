"""Progress by cell and by trial: bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from benchmark.cell import Cell

_TOLD_FROM = 0.01  # of what is expected


class Progress:
    """Tells a person what a run is at; bars leave a line behind.

    Args:
        cells: cells due.
        trials: trials due, over all cells.
        console: where to; bars if it is a terminal.
        width: cells that are made at a time.
        seconds: what cells are expected to take, by their names; else each takes the same.
    """

    def __init__(
        self,
        cells: int,
        trials: int,
        console: Console,
        width: int = 1,
        seconds: Mapping[str, float] | None = None,
    ) -> None:
        self._console, self._cells, self._width = console, cells, width
        self._seconds = seconds or {}
        self._expected = sum(self._seconds.values()) or float(cells)
        self._begun, self._past = time.monotonic(), 0.0
        self._started, self._done, self._failed = 0, 0, 0
        self._groups: set[str] = set()
        self._bars: Bars | None = None
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            times = (TimeElapsedColumn(), TextColumn("elapsed{task.fields[said]}"))
            self._bars = Bars(*columns, *times, console=console, transient=True)
            self._all = self._bars.add_task("cells", total=cells, said="")
            self._each = self._bars.add_task("trials", total=trials, said="")

    def __enter__(self) -> Progress:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bars:
            self._bars.stop()
            taken = timedelta(seconds=round(time.monotonic() - self._begun))
            self.say(f"{self._done} of {self._cells} cells, {taken} elapsed")

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def start(self, cell: Cell, trials: int) -> None:
        """A cell begins, or waits to."""
        self._started += 1
        if self._bars:
            self._bars.update(self._each, description=f"{cell.attack.label}", refresh=True)
            name = f"{cell.protocol.name} x {cell.defense.label} x seed {cell.seed}"
            self._bars.update(self._all, description=name)

    def advance(self, cell: Cell, trials: int, failed: int = 0) -> None:
        """Trials of a cell are on disk, some of which failed."""
        self._failed += failed
        if self._bars:
            self._bars.advance(self._each, trials)

    def done(self, cell: Cell, trials: int) -> None:
        """A cell is complete; in a pipe, a line for each (protocol, defense, seed)."""
        self._done += 1
        self._past += self._seconds.get(str(cell), 0.0) if self._seconds else 1.0
        if self._bars:
            self._bars.update(self._all, advance=1, said="".join(f", {s}" for s in self._state()))
            return
        group = f"{cell.protocol.name} x {cell.defense.label} x seed {cell.seed}"
        if group not in self._groups:
            self._groups.add(group)
            self.say(
                f"[{', '.join([f'{self._done}/{self._cells} cells', *self._state()])}] {group}"
            )

    def _state(self) -> list[str]:
        """Return how many cells run, how many trials failed, and hours and minutes left.

        Of these nothing is said before a hundredth is done: the first cell takes what all share.
        """
        running = min(max(self._started - self._done, 0), self._width)
        told = [f"{running} running"] if running else []
        told += [f"{self._failed} trials failed"] if self._failed else []
        if self._past >= _TOLD_FROM * self._expected:
            taken = (time.monotonic() - self._begun) / self._past
            minutes = round(taken * max(self._expected - self._past, 0.0) / 60)
            told.append(f"{minutes // 60}:{minutes % 60:02} left" if minutes else "< 0:01 left")
        return told
