"""What of the catalogue is here, where, and whether it is what the catalogue says."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tabulate import tabulate

from benchmark.data import text_readers
from benchmark.data.catalogue import CATALOGUE, Entry, Split
from benchmark.data.formats.encoded import Encoded
from benchmark.data.hub import no_download
from benchmark.data.images import READERS
from benchmark.data.pictures import Pictures
from benchmark.data.places import mirror_folder
from benchmark.data.text import load_text
from benchmark.errors import BenchmarkError, DataUnavailable

Verdict = Literal["ok", "differs", "not checked"]

SPLITS: tuple[Split, ...] = ("train", "test")


@dataclass(frozen=True)
class State:
    """What is here of one data set.

    Attributes:
        found: the set.
        tier: that supplies it; None where none does.
        where: the folder or file, or what is wrong with it.
        size: in bytes on the disk; None where that is unknown.
        digest: whether content, or each file, has the digest listed for it.
    """

    found: Entry
    tier: str | None = None
    where: str = ""
    size: int | None = None
    digest: Verdict = "not checked"


def table(mirror: Path | None = None) -> str:
    """Return a table of every data set; it reads whole sets, never the network."""
    rows = [
        [
            state.found.name,
            state.tier or "not here",
            state.where,
            "" if state.size is None else f"{state.size:,}",
            _held_against(state),
            "; ".join(filter(None, (state.found.licence, state.found.access))),
        ]
        for state in states(mirror)
    ]
    headers = ["data set", "tier", "where", "bytes", "digest", "licence and terms"]
    return tabulate(rows, headers, tablefmt="simple", disable_numparse=True)


def _held_against(state: State) -> str:
    """Return the verdict on the content, and where the catalogue has none to hold it against."""
    if state.found.kind == "text" or state.found.digest:
        return state.digest if state.tier else ""
    if not state.tier:
        return "none in the catalogue"
    own = " by the copy's SHA256SUMS" if state.digest == "ok" else ""
    return f"{state.digest}{own}; none in the catalogue"


def states(mirror: Path | None = None) -> Iterator[State]:
    """Yield what is here of each data set.

    Args:
        mirror: folder of local copies; else the environment's GRADLEAK_DATA.
    """
    folder = mirror_folder(mirror)
    for found in CATALOGUE.values():
        with no_download():
            state = _images(found, folder) if found.kind == "image" else _text(found, folder)
        yield state


def _images(found: Entry, mirror: Path | None) -> State:
    """Return the state of an image set in the first tier that has both splits."""
    for tier, read in zip(found.tier, READERS[found.name], strict=True):
        try:
            splits = [_split(found, split, read(found, split, mirror)) for split in SPLITS]
        except DataUnavailable:
            continue
        except BenchmarkError as error:
            return State(found, tier, str(error), None, "differs")
        files = splits[0][0] | splits[1][0]
        inside = mirror is not None and all(file.is_relative_to(mirror) for file in files)
        return State(
            found,
            "mirror" if inside else tier,
            os.path.commonpath(files),
            sum(file.stat().st_size for file in files),
            _all([verdict for _, verdict in splits]),
        )
    return State(found)


def _split(found: Entry, split: str, had: Pictures | Encoded) -> tuple[set[Path], bool | None]:
    """Return the files of a split, and whether they hold what they should; None is not checked."""
    if isinstance(had, Encoded):
        return set(had.files()), had.intact()
    wanted = found.digest.get(split)
    return set(had.files), None if wanted is None else had.digest() == wanted


def _text(found: Entry, mirror: Path | None) -> State:
    """Return the state of a text set, which its loader checks; tokens drawn at random have none."""
    tier = found.tier[0]
    if found.name not in text_readers.READERS:
        return State(found, tier)
    try:
        for split in SPLITS:
            load_text(found.name, split, mirror)
        _, origin = text_readers.READERS[found.name](found, "test", mirror)
    except DataUnavailable:
        return State(found)
    except BenchmarkError as error:
        return State(found, tier, str(error), None, "differs")
    folder = Path(origin) if Path(origin).is_dir() else Path(origin).parent
    in_files = Path(origin).exists()
    size = sum(file.stat().st_size for file in folder.iterdir()) if in_files else None
    where = str(folder) if in_files else origin
    listed = {"test", f"test {platform.python_version()}"} & found.digest.keys()
    return State(found, tier, where, size, "ok" if listed else "not checked")


def _all(verdicts: list[bool | None]) -> Verdict:
    """Return the worst of some verdicts; None is not checked."""
    if False in verdicts:
        return "differs"
    return "ok" if all(verdicts) else "not checked"
