"""When a cell was measured and how its number changed: git's history of its records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from tempfile import TemporaryDirectory

from tabulate import tabulate

from benchmark.errors import RecordError
from benchmark.git import git
from benchmark.leaderboard.frozen import Frozen
from benchmark.records import Record, file_of, read_file


@dataclass(frozen=True)
class Entry:
    """A cell's number at one commit.

    Attributes:
        date: of the commit, as YYYY-MM-DD.
        commit: its first digits; `now` for what is not committed.
        versions: of attack, defense and harness.
        trials: that ran; with failed ones, which count with the prior's score.
        mean: of the protocol's primary metric; None where no trial ran.
        std: sample standard deviation; None for one trial.
    """

    date: str
    commit: str
    versions: str
    trials: int
    mean: float | None
    std: float | None


def history(results: Path, protocol: str, attack: str, defense: str) -> str:
    """Return a table of a cell's numbers, oldest first, a row where it changed.

    Raises:
        RecordError: no such cell is recorded.
    """
    path = file_of(results, protocol, attack)
    if not path.is_file():
        raise RecordError(f"{path}: no such file; wanted a protocol and an attack with records")
    metric = Frozen.read(results, protocol).primary
    found: list[Entry] = []
    for date, commit, records in _versions(path):
        entry = _entry(date, commit, [r for r in records if r.defense == defense], metric.name)
        last = found[-1] if found else None
        if entry is not None and (
            last is None
            or (entry.trials, entry.mean, entry.versions) != (last.trials, last.mean, last.versions)
        ):
            found.append(entry)
    if not found:
        raise RecordError(f"{path}: holds no trial under {defense!r}")
    headers = ["date", "commit", "versions", "trials", f"{metric.name}, mean", "std"]
    rows = [(e.date, e.commit, e.versions, e.trials, _told(e.mean), _told(e.std)) for e in found]
    return tabulate(rows, headers, disable_numparse=True)


def _versions(path: Path) -> list[tuple[str, str, list[Record]]]:
    """Return a file's records at each commit that touched it, oldest first, and as they are."""
    found = []
    folder, name = path.parent, path.name
    log = git(folder, "log", "--reverse", "--format=%cs %h", "--", name)
    with TemporaryDirectory() as place:
        for line in (log or "").splitlines():
            date, commit = line.split()
            text = git(folder, "show", f"{commit}:./{name}")
            if text is not None:
                old = Path(place) / f"{commit}.jsonl"
                old.write_text(text, encoding="utf-8")
                found.append((date, commit, read_file(old).records))
    return [*found, ("", "now", read_file(path).records)]


def _entry(date: str, commit: str, records: list[Record], metric: str) -> Entry | None:
    trials = {record.key: record for record in records if record.trial is not None}.values()
    scores = [s for record in trials if (s := record.metrics.get(metric)) is not None]
    if not trials:
        return None
    identity = list(trials)[-1].identity
    versions = f"{identity.attack_version}, {identity.defense_version}, {identity.harness_version}"
    mean = fmean(scores) if scores else None
    return Entry(
        date, commit, versions, len(trials), mean, stdev(scores) if len(scores) > 1 else None
    )


def _told(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"
