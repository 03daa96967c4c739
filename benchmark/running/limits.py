"""Hard limits of a process, which nothing it imports later can raise."""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping

from benchmark.running.memory import resident

FILE_BYTES = 2**26
_FILES = 1024
_PROCESSES = 32
"""Threads count too: some libraries have a pool of their own."""
_PROCESSES_A_THREAD = 4
_ADDRESSES = 2**33
"""Bytes that are only reserved, by each thread's allocator for one."""
_FIRST_TO_GO = "1000"


def limit(allowed: int, *, threads: int, gpu: bool, walled: bool) -> None:
    """Limit this process for good, and all that it starts.

    Args:
        allowed: bytes of memory above what it holds now.
        threads: of torch.
        gpu: then addresses are not limited: CUDA reserves as many as there are.
        walled: whether its user has no other processes, so that their number can be limited.
    """
    held = {name: resident(name) for name in ("VmData", "VmSize")}
    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: FILE_BYTES}
    limits[resource.RLIMIT_NOFILE] = _FILES
    if held["VmData"] is not None:
        limits[resource.RLIMIT_DATA] = held["VmData"] + allowed
    if held["VmSize"] is not None and not gpu:
        limits[resource.RLIMIT_AS] = held["VmSize"] + allowed + _ADDRESSES
    if walled:
        limits[resource.RLIMIT_NPROC] = _PROCESSES + _PROCESSES_A_THREAD * threads
    _set(limits)
    try:  # where the machine has too little memory for all, this one goes
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write(_FIRST_TO_GO)
    except OSError:
        pass


def _set(limits: Mapping[int, int]) -> None:
    for what, most in limits.items():
        _, hard = resource.getrlimit(what)
        given = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(what, (given, given))


def machine_bytes() -> int:
    """Return the memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
