"""One machine, all of it: the same run in several processes, on one results folder.

Each process has a part of the run, and then helps the others: a group is one runner's at a time, by
its lock, and what is recorded is not due. Cores are divided among them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from threading import Thread
from typing import IO

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def run_jobs(words: Sequence[str], jobs: int, threads: int) -> int:
    """Run a command in processes of its own, print what they say, and return the worst exit code.

    Args:
        words: of the command line, less `--job`.
        jobs: how many processes.
        threads: of each.
    """
    environment = {**os.environ, **dict.fromkeys(_THREADS, str(threads))}
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmark.cli", *words, "--job", f"{number}/{jobs}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        )
        for number in range(1, jobs + 1)
    ]
    told = [
        Thread(target=_tell, args=(child.stdout, number), daemon=True)
        for number, child in enumerate(children, start=1)
    ]
    for each in told:
        each.start()
    try:
        codes = [child.wait() for child in children]
    except KeyboardInterrupt:
        for child in children:
            child.send_signal(signal.SIGINT)
        codes = [child.wait() for child in children]
    finally:
        for child in children:
            child.kill()
    for each in told:
        each.join()
    return max(130 if code == -signal.SIGINT else abs(code) for code in codes)


def _tell(lines: IO[str] | None, number: int) -> None:
    for line in lines or ():
        print(f"{number}| {line}", end="", flush=True)
