"""The examination in a process of its own: `python -m benchmark.conformance.child`.

It reads what to examine as one JSON line and writes a row a line. What a submission prints goes to
standard error.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

from benchmark.conformance.examination import examine
from benchmark.conformance.fitting import VICTIMS
from benchmark.conformance.rows import END
from benchmark.registry import Registry


def main() -> None:
    """Examine one submission, and say what became of every promise."""
    rows = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    asked = json.loads(sys.stdin.readline())
    registry = Registry([Path(folder) for folder in asked["plugins"]])
    (submission,) = registry.find(asked["kind"], asked["label"])
    for row in examine(submission, registry, asked["victims"] or VICTIMS):
        print(json.dumps(asdict(row)), file=rows)
    print(END, file=rows)


if __name__ == "__main__":
    main()
