"""`gradleak check`: which submissions are meant, each examined in a process, and the table."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tabulate import tabulate

from benchmark.conformance.rows import END, Row
from benchmark.errors import BenchmarkError
from benchmark.identity import ROOT
from benchmark.registry import MANIFEST, Kind, Registry, Submission, exactly

_LIMIT_SECONDS = 600.0
_KINDS: tuple[Kind, Kind] = ("attack", "defense")


def check(
    named: str, plugins: Sequence[Path], victims: Sequence[str], *, traceback: bool = False
) -> int:
    """Examine a submission and print a table; another for each of its variants.

    Args:
        named: a folder with submissions in it or below, or a name as `--attack` takes it.
        plugins: further folders where submissions are looked for.
        victims: protocols in place of the small victims; empty for those.
        traceback: whether to print what was raised in full, on standard error.

    Returns:
        The exit code: 0 where every promise was kept or not asked, else 1.

    Raises:
        BenchmarkError: no such submission.
    """
    folders, found, broken = _meant(named, plugins)
    kept = not broken
    for said in broken:
        print(f"{said}\n")
    for submission in found:
        started = time.monotonic()
        rows = list(examined(submission, folders, victims))
        seconds = time.monotonic() - started
        failed = [row for row in rows if row.answer == "fail"]
        kept = kept and not failed
        print(f"{submission.manifest.kind} {submission.label}")
        print(table(rows))
        print(f"{len(failed) or 'no'} promise{'s' * (len(failed) > 1)} broken, {seconds:.0f} s\n")
        for row in failed if traceback else []:
            if row.trace:
                print(f"{row.promise}:\n{row.trace}", file=sys.stderr)
    return 0 if kept else 1


def table(rows: Sequence[Row]) -> str:
    """Return the rows for a terminal."""
    lines = [
        (
            row.promise,
            row.answer,
            " ".join(filter(None, (row.reason, row.place and f"({row.place})"))),
        )
        for row in rows
    ]
    return tabulate(lines, ["promise", "", "reason"], tablefmt="simple", disable_numparse=True)


def examined(
    submission: Submission, plugins: Sequence[Path], victims: Sequence[str] = ()
) -> Iterator[Row]:
    """Examine a submission in a process of its own, which ends after ten minutes.

    A process that dies, whatever the submission did to it, is a row that fails.
    """
    asked = {
        "kind": submission.manifest.kind,
        "label": exactly(submission.label),
        "plugins": [str(folder.resolve()) for folder in plugins],
        "victims": list(victims),
    }
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmark.conformance.child"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        start_new_session=True,
    )
    try:
        said, _ = child.communicate(json.dumps(asked) + "\n", timeout=_LIMIT_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        said, _ = child.communicate()
    last, *lines = "nothing", *said.splitlines()
    for line in lines:
        if line == END:
            return
        row = Row(**json.loads(line))
        last = row.promise
        yield row
    code = child.returncode
    died = f"by signal {-code}" if code < 0 else f"with exit code {code}"
    yield Row("lives to the end", "fail", f"its process ended {died} after: {last}")


def _meant(named: str, plugins: Sequence[Path]) -> tuple[list[Path], list[Submission], list[str]]:
    """Return where to look, the submissions meant, and those of them that are broken."""
    path = Path(named)
    if path.name == MANIFEST:
        path = path.parent
    if not path.is_dir():
        registry = Registry(plugins)
        kinds = [kind for kind in _KINDS if named.split(",")[0] in registry.names(kind)]
        if not kinds:
            raise BenchmarkError(f"{named}: neither a folder nor a submission; see gradleak list")
        return list(plugins), [s for kind in kinds for s in registry.find(kind, named)], []
    folders, path = [*plugins, path], path.resolve()
    registry = Registry(folders)
    found = [
        submission
        for kind in _KINDS
        for submission in registry.all(kind)
        if submission.folder.is_relative_to(path)
    ]
    broken = [said for folder, said in registry.broken.items() if folder.is_relative_to(path)]
    return folders, found, broken
