"""Progress by cell and by trial: bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from benchmark.cell import Cell


class Progress:
    """Tells a person what a run is at.

    Args:
        cells: cells due.
        trials: trials due, over all cells.
        console: where to; bars if it is a terminal.
    """

    def __init__(self, cells: int, trials: int, console: Console) -> None:
        self._console, self._cells = console, cells
        self._done, self._group = 0, ""
        self._bars: Bars | None = None
        if console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
            self._bars = Bars(*columns, TimeElapsedColumn(), console=console, transient=True)
            self._all = self._bars.add_task("cells", total=cells)
            self._each = self._bars.add_task("trials", total=trials)

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

    def say(self, line: str) -> None:
        """Print a line."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def start(self, cell: Cell, trials: int) -> None:
        """A cell begins."""
        if self._bars:
            self._bars.update(self._each, description=f"{cell.attack.label}", refresh=True)
            name = f"{cell.protocol.name} x {cell.defense.label} x seed {cell.seed}"
            self._bars.update(self._all, description=name)

    def advance(self, cell: Cell, trials: int) -> None:
        """Trials of a cell are on disk."""
        if self._bars:
            self._bars.advance(self._each, trials)

    def done(self, cell: Cell, trials: int) -> None:
        """A cell is complete; in a pipe, a line for each (protocol, defense, seed)."""
        self._done += 1
        if self._bars:
            self._bars.advance(self._all)
            return
        group = f"{cell.protocol.name} x {cell.defense.label} x seed {cell.seed}"
        if group != self._group:
            self._group = group
            self.say(f"[{self._done}/{self._cells} cells] {group}")
