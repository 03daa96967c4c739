"""Joins results folders: what other machines recorded, each record once.

Everything is compared before anything is written. Two records of one trial by the same versions
must be one answer: to the last bit on the same hardware, libraries and threads, within the
tolerances of `verify` elsewhere. Two that are not are an error that names both files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmark.attestations import Attestations
from benchmark.errors import RecordError
from benchmark.leaderboard.frozen import Frozen
from benchmark.prices import Prices
from benchmark.records import Record, append, read_file, write_protocol
from benchmark.records.files import files_in, locked
from benchmark.records.storage import append_text
from benchmark.tunings import FILE as TUNING
from benchmark.tunings import Tunings
from benchmark.verify.tolerances import allowed, chaotic, equal

Key = tuple[object, ...]


@dataclass
class _Joined:
    """What a folder adds to another."""

    records: dict[Path, list[Record]] = field(default_factory=dict)
    protocols: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    there: int = 0


def merge(into: Path, folders: Sequence[Path]) -> Iterator[str]:
    """Join folders to a results folder, and say of each what it added.

    Raises:
        RecordError: a folder is missing, a line cannot be read, or two records of one trial, two
            protocols of one name or two tunings of one search differ; that folder adds nothing.
    """
    for folder in folders:
        if folder.resolve() == into.resolve():
            raise RecordError(f"{folder}: wanted another folder than the one it is joined to")
        found = _compared(into, folder)
        tunings = _tunings(into, folder)
        for name, frozen in found.protocols.items():
            write_protocol(into, name, dict(frozen))
        for path, records in found.records.items():
            append(path, records)
        for tuned in tunings:
            tuned.write()
        prices, attested = _prices(into, folder), _attestations(into, folder)
        made = sum(map(len, found.records.values()))
        more = f"; {prices} prices, {len(tunings)} tunings, {attested} attestations"
        yield f"{folder}: {made} records joined, {found.there} were there{more}"


def _compared(into: Path, folder: Path) -> _Joined:
    found = _Joined()
    for path in files_in(folder):
        relative = path.relative_to(folder)
        name = relative.parts[0]
        if name not in found.protocols:
            found.protocols[name] = _frozen(into, folder, name)
        held = {_key(record): record for record in _records(into / relative)}
        new: dict[Key, Record] = {}
        for record in _records(path):
            key = _key(record)
            other = new.get(key) or held.get(key)
            if other is None or (other.status == "unavailable" != record.status):
                new[key] = record
            elif record.status != "unavailable":
                found.there += 1
                _one_answer(record, other, path, into / relative)
        if new:
            found.records[into / relative] = list(new.values())
    return found


def _records(path: Path) -> list[Record]:
    """Return a file's records; of none there, none."""
    reading = read_file(path)
    if reading.damaged:
        raise RecordError(reading.damaged[0])
    return reading.records


def _key(record: Record) -> Key:
    """Return what two records of one trial, by one version of everything, share."""
    return (*record.key, *record.identity.decides, record.provenance.key)


def _one_answer(one: Record, other: Record, here: Path, there: Path) -> None:
    """Raise RecordError where two records of one trial are not one answer."""
    what = f"{one.defense}, seed {one.seed}, trial {one.trial}"
    if one.status != other.status:
        raise RecordError(
            f"{here}: {what} {one.status.replace('_', ' ')}; {there}: "
            f"{other.status.replace('_', ' ')}; wanted one of them taken out"
        )
    alike = one.provenance.place == other.provenance.place
    judge: Callable[[str, float | None, float | None], bool] = equal if alike else allowed
    judge = chaotic if one.rounding_decides and not alike else judge
    for name in sorted(one.metrics.keys() & other.metrics.keys()):
        if not judge(name, one.metrics[name], other.metrics[name]):
            raise RecordError(
                f"{here}: {what}: {name} is {one.metrics[name]}; {there}: {other.metrics[name]}; "
                "wanted one answer: see gradleak verify --against"
            )


def _frozen(into: Path, folder: Path, name: str) -> Mapping[str, Any]:
    """Return a protocol that both folders have alike, or one that is new.

    Raises:
        RecordError: none lies beside the records, or the two are of different digests.
    """
    new = Frozen.read(folder, name)
    if (into / name / "protocol.json").is_file():
        held = Frozen.read(into, name)
        if held.digest != new.digest:
            raise RecordError(
                f"{folder / name}: protocol of digest {new.digest}; {into / name}: {held.digest}; "
                "wanted records of one version"
            )
        return held.content
    return new.content


def _tunings(into: Path, folder: Path) -> list[Tunings]:
    """Return the tunings with what they gain; raises where one search was tuned to two rates."""
    made = []
    for path in sorted(folder.glob(f"*/{TUNING}")):
        name = path.parent.name
        mine, theirs = Tunings.read(into, name), Tunings.read(folder, name)
        for attack, tuning in theirs.attacks.items():
            held = mine.attacks.get(attack)
            if held is not None and held.version == tuning.version and held.rate != tuning.rate:
                raise RecordError(
                    f"{path}: {attack} at rate {tuning.rate}; {mine.path}: {held.rate}; "
                    "wanted one of them taken out"
                )
        new = {attack: one for attack, one in theirs.attacks.items() if attack not in mine.attacks}
        if new:
            made.append(Tunings(mine.path, {**mine.attacks, **new}))
    return made


def _prices(into: Path, folder: Path) -> int:
    """Add the prices that are not there, and return how many."""
    held, new = Prices(into), Prices(folder).found
    added = [price for key, price in new.items() if key not in held.found]
    for price in added:
        held.add(price)
    return len(added)


def _attestations(into: Path, folder: Path) -> int:
    """Add the attestations that are not there, line by line, and return how many."""
    mine, theirs = Attestations(into).path, Attestations(folder).path  # read: a bad line is told
    if not theirs.is_file():
        return 0
    held = set(mine.read_text(encoding="utf-8").splitlines()) if mine.is_file() else set()
    new = [line for line in theirs.read_text(encoding="utf-8").splitlines() if line not in held]
    if new:
        with locked(mine):
            append_text(mine, "".join(f"{line}\n" for line in new))
    return len(new)
