"""The examination in a process of its own, which `launch.py` starts.

It reads what to examine as one JSON line and writes a row a line. What a submission prints goes to
standard error.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from benchmark.conformance.examination import examine
from benchmark.conformance.fitting import VICTIMS
from benchmark.conformance.rows import END
from benchmark.registry import Registry
from benchmark.running.limits import limit

_BYTES = 2**32  # of memory, for the small victims


def main() -> None:
    """Examine one submission, and say what became of every promise."""
    rows = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.readline())
    if asked["threads"] is not None:
        torch.set_num_threads(asked["threads"])
    if asked["walled"]:
        limit(_BYTES, threads=torch.get_num_threads(), gpu=False, walled=True)
    registry = Registry([Path(folder) for folder in asked["plugins"]])
    (submission,) = registry.find(asked["kind"], asked["label"])
    for row in examine(submission, registry, asked["victims"] or VICTIMS):
        print(row.model_dump_json(), file=rows)
    print(END, file=rows)
