"""Starts a process of the program: `python -m benchmark.running.launch MODULE ARGUMENTS`.

Nothing is collected while it imports, which takes a fifth off a start, and what was imported is
looked through by no later collection.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module


def command(module: str, *arguments: str) -> list[str]:
    """Return the command line that runs the `main` of a module."""
    return [sys.executable, "-u", "-m", __name__, module, *arguments]


def main() -> None:
    """Import a module and run its `main`, which finds its own arguments in `sys.argv`."""
    gc.disable()
    del sys.argv[0]
    started = import_module(sys.argv[0])
    gc.freeze()
    gc.enable()
    try:
        started.main()
    finally:
        gc.unfreeze()  # else libraries tell of what they think has leaked


if __name__ == "__main__":
    main()
