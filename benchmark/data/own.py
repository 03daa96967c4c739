"""One's own data: an entry that no catalogue lists, split into public and private by a seed."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmark.data.catalogue import Entry, Kind, Split
from benchmark.errors import ProtocolError

OWN = "own data"
"""The name of every set that is none of the catalogue's."""


@dataclass(frozen=True)
class Halves:
    """How items are dealt out: by what they hold, whatever they are called.

    Attributes:
        seed: another one deals otherwise.
        public: share of the items that is public, in (0, 1).
    """

    seed: int = 0
    public: float = 0.5

    def rows(self, contents: Sequence[str], split: Split, where: str) -> list[int]:
        """Return the items of a split, in their order; two of one content are never parted.

        Args:
            contents: a digest of each item.
            split: `train` is public, `test` private.
            where: the items lie, for the error.

        Raises:
            ProtocolError: fewer than two different items, so that one half were empty.
        """
        dealt = sorted(set(contents), key=lambda content: digest(f"{self.seed} {content}"))
        if len(dealt) < 2:
            raise ProtocolError(f"{where}: {len(dealt)} different items; wanted two or more")
        public = set(dealt[: min(max(round(self.public * len(dealt)), 1), len(dealt) - 1)])
        wanted = split == "train"
        return [row for row, content in enumerate(contents) if (content in public) == wanted]


@dataclass(frozen=True)
class OwnSet(Entry):
    """A data set that a protocol brings, as the catalogue would list it.

    Attributes:
        content: sha256 of all that it holds; empty where a revision tells it.
        halves: how it is split.
    """

    content: str = ""
    halves: Halves = Halves()

    @abstractmethod
    def read(self, split: Split) -> Any:  # noqa: ANN401
        """Return a split, as a reader of the catalogue's sets of this kind does."""


def about(kind: Kind, source: str) -> dict[str, Any]:
    """Return what the catalogue would say of a set that it does not know."""
    return {
        "name": OWN,
        "kind": kind,
        "description": "brought by a protocol",
        "source": source,
        "licence": "the owner's",
        "citation": "",
        "tier": (),
        "size": {},
        "digest": {},
    }


def digest(content: str | bytes) -> str:
    """Return a sha256 in hexadecimal."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()
