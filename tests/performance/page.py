"""Writes a page of what the benchmarks measured, with what each of them says of itself.

uv run pytest tests/performance -n 0 -m "not gpu" --benchmark-json=speed.json
uv run python tests/performance/page.py speed.json > docs/speed.md
"""

from __future__ import annotations

import ast
import json
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from tabulate import tabulate

ROOT = Path(__file__).parents[2]


def page(measured: dict[str, Any]) -> str:
    """Return the page, in Markdown.

    Args:
        measured: what pytest-benchmark wrote.
    """
    machine, commit = measured["machine_info"], measured["commit_info"]
    cpu = machine["cpu"]
    lines = [
        "# Speed",
        f"Measured on {measured['datetime'][:10]} at commit {commit['id'][:10]}: "
        f"{cpu['brand_raw']}, {cpu['count']} cores, no GPU, Python {machine['python_version']}, "
        f"torch {torch.__version__}. Ratios of one run are comparable; seconds depend on the "
        "machine.",
        f"```\n{_commands()}\n```",
    ]
    for path, tests in groupby(measured["benchmarks"], lambda one: one["fullname"].split("::")[0]):
        told = ast.get_docstring(ast.parse((ROOT / path).read_text()))
        assert told is not None
        title, _, rest = told.partition("\n\n")
        lines += [f"## {title.rstrip('.')}", f"[`{path}`](../{path})", rest]
        for name, group in groupby(tests, lambda one: one["group"]):
            lines += [f"**{name}**", _table(list(group))]
    return "\n\n".join(line for line in lines if line) + "\n"


def _commands() -> str:
    assert __doc__ is not None
    return __doc__.partition("\n\n")[2].strip()


def _table(group: list[dict[str, Any]]) -> str:
    """Return a line for each test of a group: its case, and what it noted, or else its seconds."""
    noted = [one["extra_info"] or {"seconds": one["stats"]["median"]} for one in group]
    keys = dict.fromkeys(key for each in noted for key in each)
    rows = [
        [_case(one), *(_number(each.get(key)) for key in keys)]
        for one, each in zip(group, noted, strict=True)
    ]
    heads = ["case", *(key.replace("_", " ") for key in keys)]
    align = ["left", *["right"] * len(keys)]
    return tabulate(rows, heads, "github", disable_numparse=True, colalign=align)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _case(test: dict[str, Any]) -> str:
    return test["param"] or test["name"].removeprefix("test_").replace("_", " ")


if __name__ == "__main__":
    print(page(json.loads(Path(sys.argv[1]).read_text())), end="")
