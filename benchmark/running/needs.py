"""What a cell's process needs of a machine, and how many of them a machine has room for."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import torch

from benchmark.cell import Cell
from benchmark.federation import KEPT_BYTES
from benchmark.records import known
from benchmark.running.limits import machine_bytes
from benchmark.running.plan import file_of_cell
from benchmark.running.provenance import hardware_of

_BESIDE = 2 * 2**30
"""Bytes beside an attack's own: libraries, data, victim, and the updates that are kept."""
_MEMORY, _GROUP = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


def memory_of(cell: Cell, results: Path) -> int:
    """Return the bytes that the process of a cell may take: as recorded, else as granted."""
    found = known(file_of_cell(cell, results)).records
    peaks = [record.peak_bytes for record in found if record.peak_bytes is not None]
    return _BESIDE + (max(peaks) if peaks else cell.protocol.budget.budget().memory_bytes)


def free_bytes() -> int:
    """Return the memory that is free on this machine, or that this process's group may have."""
    free = machine_bytes()
    with suppress(OSError, ValueError):
        said = dict(line.split(":") for line in _MEMORY.read_text().splitlines())
        free = int(said["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):  # "max" is no number
        free = min(free, int(_GROUP.read_text()))
    return free


def sharing(cells: Iterable[Cell], results: Path, device: torch.device) -> int:
    """Return how many processes one GPU has memory for, by the peaks recorded on its like.

    One where a cell has no such record yet, or where victims live on the processor.
    """
    if device.type != "cuda":
        return 1
    name, most = hardware_of(device), 0
    for cell in cells:
        found = known(file_of_cell(cell, results)).records
        peaks = [r.peak_bytes or 0 for r in found if r.provenance.hardware == name]
        if not any(peaks):
            return 1
        most = max(most, *peaks)
    return max(1, torch.cuda.mem_get_info(device)[0] // (_BESIDE + most))


def room(cells: Iterable[Cell], results: Path, *, gpus: int, per_gpu: int) -> int:
    """Return how many processes this machine has room for, one at least.

    Args:
        cells: that are to be made.
        results: whose records tell what they need.
        gpus: of this machine, if cells are made on them.
        per_gpu: processes that share one.
    """
    most = _most(cells, results)
    fit = max(1, free_bytes() // most)
    return min(fit, gpus * per_gpu if gpus else torch.get_num_threads())


def kept_bytes(cells: Iterable[Cell], results: Path, device: torch.device, jobs: int) -> int:
    """Return what the updates that a process holds may take, so that attacks share them.

    Two caches take half the memory that so many processes leave free; on a GPU, whose memory is
    dear, no more than a round takes by itself.
    """
    if device.type == "cuda":
        return KEPT_BYTES
    return max(KEPT_BYTES, (free_bytes() // jobs - _most(cells, results)) // 4)


def _most(cells: Iterable[Cell], results: Path) -> int:
    return max((memory_of(cell, results) for cell in cells), default=_BESIDE)
