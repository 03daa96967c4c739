"""One machine, all of it: cells in several processes that are kept, cores divided among them.

    python -m benchmark.running.launch benchmark.running.pool DESCRIPTOR    # one of the processes

A process answers over a pipe, and ends with its parent, however that ends: its standard input is
at its end then. One that dies is replaced, and what its cell lacks is made again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection, Pipe, wait
from threading import Thread
from typing import Any

from benchmark.cell import Cell
from benchmark.running import launch
from benchmark.running.engine import Ended, Task
from benchmark.running.making import Made, Maker, Terms
from benchmark.running.needs import free_bytes

Behind = tuple[str, int, str]
"""A round behind a defense: its protocol, seed and defense."""
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_AHEAD = 512  # cells: who is done finds a round of its own, and need not help with another's


class Pool:
    """Makes cells in processes on this machine; as a context, it ends them.

    Args:
        terms: what each is told.
        places: what stands in the environment of each beside its number of threads; one a process.
        threads: of each.
        memory_of: bytes that a cell's process may take; who does not fit waits.
    """

    ahead = _AHEAD

    def __init__(
        self,
        terms: Terms,
        places: Sequence[Mapping[str, str]],
        threads: int,
        memory_of: Callable[[Cell], int],
    ) -> None:
        self.width = self.rounds = len(places)
        self._memory_of, self._free = memory_of, free_bytes()
        shared = dict.fromkeys(THREADS, str(threads))
        self._processes = [_Process(terms, {**shared, **place}) for place in places]
        self._waiting: dict[Behind, list[Task]] = {}

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.end()

    def start(self, cell: Cell, trials: Sequence[int]) -> None:
        """Take on the trials of a cell."""
        task = Task(cell, trials, self._memory_of(cell))
        self._waiting.setdefault(_shared(cell), []).append(task)

    def take(self) -> tuple[Cell, Made | Ended]:
        """Wait for the next stack of any process."""
        while True:
            self._give()
            busy = {process.pipe: process for process in self._processes if process.task}
            process = busy[wait(list(busy))[0]]  # type: ignore[index]
            task = process.task
            assert task
            try:
                said = process.pipe.recv()
            except (EOFError, OSError):
                process.begin()
                if (ended := task.died("its process died")) is None:
                    self._waiting.setdefault(_shared(task.cell), []).insert(0, task)
                    continue
                return task.cell, ended
            if said is None:
                process.task = None
                self._give()  # before the last one's records are kept, for which it need not wait
                return task.cell, Ended()
            return task.cell, task.came(said)

    def _give(self) -> None:
        """Hand waiting cells to idle processes, to each one of what it holds already, if any."""
        for process in self._processes:
            if process.task is None and (task := self._next_for(process)) is not None:
                process.give(task)

    def _next_for(self, process: _Process) -> Task | None:
        """Take the waiting cell that is least strange to a process, of those the memory is for."""
        others = [each.task for each in self._processes if each.task]
        free = self._free - sum(task.memory for task in others)
        taken = [_shared(task.cell) for task in others]
        for behind in sorted(self._waiting, key=lambda one: _strange(one, process.held, taken)):
            tasks = self._waiting[behind]
            for task in tasks:
                if not others or task.memory <= free:
                    tasks.remove(task)
                    if not tasks:
                        del self._waiting[behind]
                    return task
        return None


def _shared(cell: Cell) -> Behind:
    """Return what a cell shares with those of the same round, widest first."""
    return cell.protocol.name, cell.seed, cell.defense.label


def _strange(one: Behind, held: Behind | None, taken: Sequence[Behind]) -> int:
    """Return how much a process that holds a round has to make anew for the cells of another.

    What others make at that moment is made twice, so it comes last, and is little if the updates
    without a defense are at hand.
    """
    if one == held:
        return 0
    mine = held is not None and one[:2] == held[:2]
    if one in taken:
        return 4 if mine else 6
    if mine:
        return 1
    if one[:2] in [other[:2] for other in taken]:
        return 5
    return 2 if held is not None and one[0] == held[0] else 3


class _Process:
    """One process of a pool.

    Attributes:
        task: what it is at.
        held: the round it has made.
    """

    def __init__(self, terms: Terms, environment: Mapping[str, str]) -> None:
        self._terms, self._environment = terms, {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None
        self.begin()

    def begin(self) -> None:
        """Start it, or another in its place."""
        self.end()
        self.task: Task | None = None
        self.held: Behind | None = None
        self.pipe, theirs = Pipe()
        self._process = subprocess.Popen(
            launch.command("benchmark.running.pool", str(theirs.fileno())),
            stdin=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env=self._environment,
        )
        theirs.close()
        self.pipe.send(self._terms)

    def give(self, task: Task) -> None:
        """Have it make what is left of a cell."""
        self.task, self.held = task, _shared(task.cell)
        try:
            self.pipe.send((task.cell, task.left))
        except OSError:
            pass  # it died: its pipe is at its end, which `take` meets

    def end(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdin
            self._process.stdin.close()
            self.pipe.close()


def main() -> None:
    """Make cells until there are no more to make."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the parent decides
    Thread(target=_end_with_parent, daemon=True).start()
    pipe: Connection[Any, Any] = Connection(int(sys.argv[1]))
    with ExitStack() as stack:
        maker = Maker.on(pipe.recv(), stack)
        while True:
            cell, trials = pipe.recv()
            for said in maker.told(cell, trials):
                pipe.send(said)
            pipe.send(None)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)
