"""The data sets by name: what each is, whose it is, and the digest its content must have.

One file of `sets/` says it of each. Imports nothing heavy, so that listing them is instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator

from benchmark.documents import read_document
from benchmark.errors import ProtocolError, unknown

SETS = Path(__file__).parent / "sets"
Kind = Literal["image", "text"]
Split = Literal["train", "test"]
Tier = Literal["embedded", "mirror", "hub"]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _span(ends: Any) -> range:  # noqa: ANN401  (whatever stands in the file)
    match ends:
        case [int(first), int(end)]:
            return range(first, end)
    raise ValueError("wanted [first row, row after the last]")


Span = Annotated[range, PlainValidator(_span)]


@dataclass(frozen=True)
class Hub:
    """One parquet file a split, in one commit of a data set on the Hugging Face hub.

    Attributes:
        repository: owner/name.
        revision: the commit.
        files: path in the repository by split.
        columns: names of the image and the label column, or of the text.
        rows: where the order of a split's rows matters, the rows to take, in the file by
            the first and the one after the last; else all.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    repository: str
    revision: str
    files: Mapping[str, str] = field(hash=False)
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Span, ...]] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class Entry:
    """One data set.

    Split `train` is public (statistics, surrogate data), `test` is private (trials are drawn
    from it); they share no picture and no text.

    Attributes:
        name: the name a protocol uses.
        kind: what it holds.
        description: content, native size in pixels, how it is split.
        source: where it comes from.
        licence: as stated by its authors.
        citation: whom to cite.
        tier: the tiers that can supply it, in the order tried.
        size: number of items by split: pictures before any crop, or users; empty where it is the
            copy's.
        digest: sha256 of the decoded content by split, checked on load. Images: the bytes of every
            picture (uint8, or little-endian float32), then of the labels (little-endian int64).
            Text: user ids and texts in UTF-8, each followed by a zero byte; of `pydoc` by split and
            Python version ("test 3.11.7"); one not listed is not checked. Empty where it is the
            copy's: then each file is held against the SHA256SUMS beside it, if there is one.
        class_names: of images, by label.
        crops: the sides in pixels at which a set of crops can be had; empty where pictures are
            resized to any side.
        hub: where the hub tier finds it.
        access: how to get it where no tier but the mirror has it, and on what terms.
        users_are: what a user is, of text.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    kind: Kind
    description: str
    source: str
    licence: str
    citation: str
    tier: tuple[Tier, ...]
    size: Mapping[str, int] = field(hash=False)
    digest: Mapping[str, Sha256] = field(hash=False)
    class_names: tuple[str, ...] = ()
    crops: tuple[int, ...] = ()
    hub: Hub | None = None
    access: str = ""
    users_are: str = ""


class Catalogue(Mapping[str, Entry]):
    """Every data set by name, each read from its file when it is first asked for."""

    def __init__(self, folder: Path = SETS) -> None:
        """Find the files of a folder."""
        self._files = {path.stem: path for path in sorted(folder.glob("*.yaml"))}
        self.read: dict[str, Entry] = {}

    def __getitem__(self, name: str) -> Entry:
        if name not in self.read:
            self.read[name] = read_document(self._files[name]).fit(Entry)
        return self.read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


CATALOGUE = Catalogue()


def entry(name: str) -> Entry:
    """Return a data set's entry; ProtocolError where none has this name."""
    if name not in CATALOGUE:
        raise ProtocolError(unknown("data set", name, CATALOGUE))
    return CATALOGUE[name]


def known(name: str | Entry, kind: Kind, split: str) -> Entry:
    """Return the entry of a set of this kind; ProtocolError where kind or split is not had."""
    found = name if isinstance(name, Entry) else entry(name)
    if found.kind != kind:
        names = ", ".join(other.name for other in CATALOGUE.values() if other.kind == kind)
        raise ProtocolError(f"data set {found.name!r} holds {found.kind}; {kind} sets are {names}")
    if split not in ("train", "test"):
        raise ProtocolError(f"data set {found.name!r} has no split {split!r}; wanted train or test")
    return found
