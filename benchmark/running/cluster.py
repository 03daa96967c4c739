"""Many machines: cells as tasks of Ray, whose driver alone writes records.

A task makes one cell and streams its stacks back; what it needs of a node are the cores of one
process, the memory of its cell and a share of a GPU. Data and victims are made by each process of a
node, from the files that lie there, and kept for its next tasks: so they are the local ones bit for
bit, whatever a copy's address would have changed, and files are read once a node, into its cache of
pages. A task whose process or node dies is given again with what had not come back. Nodes want the
same checkout, environment and data at the same paths, as a shared file system gives them.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import cache
from typing import Any

from benchmark.cell import Cell
from benchmark.errors import BenchmarkError, first_line
from benchmark.records import Identity
from benchmark.running.engine import Ended, Task
from benchmark.running.making import Broken, Made, Maker, Terms, afresh
from benchmark.running.pool import THREADS

_OWN: dict[str, Any] = {"include_dashboard": False}  # of a cluster that is ours alone


class Cluster:
    """Makes cells on a cluster; as a context, it leaves the cluster, and ends one of its own.

    Args:
        terms: what each process is told.
        address: of a cluster; None makes one of this machine.
        threads: of each process, and so the cores of a task.
        gpus: of each process.
        memory_of: bytes that a cell's process may take.

    Raises:
        BenchmarkError: Ray is not installed, no cluster answers, or no node of it is large enough.
    """

    def __init__(
        self,
        terms: Terms,
        *,
        address: str | None,
        threads: int,
        gpus: float,
        memory_of: Callable[[Cell], int],
    ) -> None:
        self._ray, self._terms, self._memory_of = _ray(), terms, memory_of
        self._needs = {"CPU": float(threads), "GPU": gpus}
        environment = {"env_vars": dict.fromkeys(THREADS, str(threads))}
        try:
            self._ray.init(
                address=address,
                runtime_env=environment,
                log_to_driver=False,
                logging_level="ERROR",
                **({} if address else _OWN),
            )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise BenchmarkError(f"--address {address}: {first_line(error)}") from error
        if not self.width:
            self._ray.shutdown()
            wanted = f"{threads} cores" + (f" and {gpus:g} GPUs" if gpus else "")
            raise BenchmarkError(f"--engine ray: no node has {wanted}; see --jobs")
        options = {"num_cpus": threads, "num_gpus": gpus, "max_retries": 0}
        self._remote = self._ray.remote(num_returns="streaming", **options)(_stacks)
        self._tasks: dict[Any, Task] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._ray.shutdown()

    @property
    def width(self) -> int:
        """Cells that are made at a time, by the nodes that are alive."""
        needs = {name: each for name, each in self._needs.items() if each}
        return sum(
            min(int(node.get(n, 0) / each) for n, each in needs.items()) for node in self._nodes
        )

    @property
    def ahead(self) -> int:
        """Cells that may wait: as many again, for nodes that come."""
        return max(self.width, 1)

    @property
    def rounds(self) -> int:
        """One after the other: which process makes a cell is for Ray to choose."""
        return 1

    @property
    def _nodes(self) -> list[dict[str, float]]:
        return [node["Resources"] for node in self._ray.nodes() if node["Alive"]]

    def start(self, cell: Cell, trials: Sequence[int]) -> None:
        """Take on the trials of a cell."""
        self._give(Task(cell, trials, self._memory_of(cell)))

    def _give(self, task: Task) -> None:
        most = max((node.get("memory", 0) for node in self._nodes), default=0)
        memory = min(task.memory, int(most))  # alone on a node, if it wants more
        told = self._terms, task.cell, task.cell.identity, task.left
        self._tasks[self._remote.options(memory=memory).remote(*told)] = task

    def take(self) -> tuple[Cell, Made | Ended]:
        """Wait for the next stack of any task."""
        lost, theirs = self._ray.exceptions.RayError, self._ray.exceptions.RayTaskError
        while True:
            (stream,), _ = self._ray.wait(list(self._tasks), num_returns=1, fetch_local=False)
            task = self._tasks[stream]
            try:
                return task.cell, task.came(self._ray.get(next(stream)))
            except StopIteration:
                del self._tasks[stream]
                return task.cell, Ended()
            except theirs as error:
                raise BenchmarkError(f"on a node: {first_line(error.cause)}") from error
            except lost as error:
                del self._tasks[stream]
                if (ended := task.died(first_line(error))) is not None:
                    return task.cell, ended
                self._give(task)


def _ray() -> Any:  # noqa: ANN401  (a module that may not be there)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # else it reports to its makers
    try:
        import ray
    except ImportError as error:
        said = "--engine ray: Ray is not installed; get it by: pip install 'gradleak[ray]'"
        raise BenchmarkError(said) from error
    return ray


def _stacks(
    terms: Terms, cell: Cell, identity: Identity, trials: Sequence[int]
) -> Iterator[Made | Broken]:
    """Make a cell, of this identity where the driver is, in a process of a node."""
    cell = afresh(cell)
    if cell.identity != identity:
        said = f"{platform.node()}: {cell}: another source than the driver's; wanted one checkout"
        yield Broken(said, bad_input=True)
        return
    yield from _maker(terms).told(cell, trials)


@cache
def _maker(terms: Terms) -> Maker:
    """Return what makes the cells of this process, which ends with its last task."""
    return Maker.on(terms, ExitStack())
