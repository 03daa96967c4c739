"""`gradleak check`: which submissions are meant, each examined in a process, and the table."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from tabulate import tabulate

from benchmark.conformance.asking import examined
from benchmark.conformance.rows import Row
from benchmark.errors import BenchmarkError, ProtocolError, unknown
from benchmark.manifest import MANIFEST, Kind
from benchmark.protocol.places import is_file, protocol_files
from benchmark.registry import Registry, Submission
from benchmark.running.heard import Ear

_KINDS: tuple[Kind, Kind] = ("attack", "defense")


def check(
    named: str,
    plugins: Sequence[Path],
    victims: Sequence[str],
    *,
    trust: bool = False,
    traceback: bool = False,
) -> int:
    """Examine a submission and print a table; another for each of its variants.

    Args:
        named: a folder with submissions in it or below, or a name as `--attack` takes it.
        plugins: further folders where submissions are looked for.
        victims: protocols in place of the small victims; empty for those.
        trust: whether what comes from outside may run without a wall.
        traceback: whether to print what was raised in full, on standard error.

    Returns:
        The exit code: 0 where every promise was kept or not asked, else 1.

    Raises:
        BenchmarkError: no such submission or protocol, or one from outside where no wall is.
    """
    files = [_file(name) for name in victims]
    folders, found, broken = _meant(named, plugins)
    kept = not broken
    for said in broken:
        print(f"{said}\n")
    for submission in found:
        started = time.monotonic()
        with closing(Ear()) as ear:
            rows = list(examined(submission, folders, files, trust=trust, ear=ear))
            printed = ear.take()
        seconds = time.monotonic() - started
        failed = [row for row in rows if row.answer == "fail"]
        kept = kept and not failed
        print(f"{submission.manifest.kind} {submission.label}")
        print(table(rows))
        print(f"{len(failed) or 'no'} promise{'s' * (len(failed) > 1)} broken, {seconds:.0f} s\n")
        for row in failed if traceback else []:
            if row.trace:
                print(f"{row.promise}:\n{row.trace}\n", file=sys.stderr)
        if printed:
            print(f"{submission.label} printed:\n{printed}", file=sys.stderr)
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


def _file(protocol: str) -> Path:
    """Return the file of a protocol, by its name or its path."""
    found = protocol_files()
    if not is_file(protocol) and protocol not in found:
        raise ProtocolError(unknown("protocol", protocol, found))
    return Path(protocol).resolve() if is_file(protocol) else found[protocol]


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
