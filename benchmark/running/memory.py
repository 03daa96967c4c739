"""Peak memory of a stretch of code, above what stood before it."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import torch
from torch import nn

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Peak:
    """Measures the peak between entry and exit: device memory on CUDA, else resident memory.

    `bytes` is None where the system does not tell (other than Linux, or not permitted).
    """

    def __init__(self, model: nn.Module) -> None:
        device = next(model.parameters()).device
        self._cuda = device if device.type == "cuda" else None
        self.bytes: int | None = None

    def __enter__(self) -> Peak:
        if self._cuda is not None:
            torch.cuda.reset_peak_memory_stats(self._cuda)
            self._start: int | None = torch.cuda.memory_allocated(self._cuda)
        else:
            self._start = resident("VmRSS") if _reset() else None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._start is None:
            return
        if self._cuda is not None:
            top: int | None = torch.cuda.max_memory_allocated(self._cuda)
        else:
            top = resident("VmHWM")
        self.bytes = None if top is None else max(top - self._start, 0)


def _reset() -> bool:
    try:
        _CLEAR.write_text("5")  # resets the high-water mark alone
    except OSError:
        return False
    return True


def resident(field: str) -> int | None:
    """Return a field of this process's memory status in bytes; None where there is none."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None
