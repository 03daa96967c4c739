"""Text of a data set, by the user who wrote it."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmark.data.catalogue import Entry, Split, known
from benchmark.data.places import check_digest
from benchmark.errors import DataUnavailable

_PARAGRAPH = 40  # characters from which a repeated paragraph is no accident


@dataclass(frozen=True)
class TextSet:
    """One split of a text set.

    Attributes:
        name: in the catalogue.
        split: `train` is public, `test` is private; a user is in one of them.
        users: text by user id, in a fixed order.
    """

    name: str
    split: Split
    users: dict[str, str]


def load_text(name: str, split: Split, mirror: Path | None = None) -> TextSet:
    """Return a split by user, kept in memory for the next call.

    Args:
        name: in the catalogue.
        split: `train` or `test`.
        mirror: folder of local copies; no text set of today needs one.

    Raises:
        ProtocolError: no such text set or split.
        DataUnavailable: it cannot be had here.
        BenchmarkError: the content is not what the catalogue says.
    """
    return _load(known(name, "text", split), split)


@lru_cache(maxsize=16)
def _load(found: Entry, split: Split) -> TextSet:
    users = _read_pydoc(found, split)
    content = "".join(f"{user}\0{text}\0" for user, text in users.items())
    digest = hashlib.sha256(content.encode()).hexdigest()
    python = platform.python_version()
    check_digest(found, f"{split} {python}", digest, f"Python {python}")
    return TextSet(found.name, split, users)


def _read_pydoc(found: Entry, split: str) -> dict[str, str]:
    """Return every second help topic of those that repeat no paragraph of an earlier one."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        command = "install Python with its standard library in full"
        raise DataUnavailable(found.name, ["pydoc_data.topics"], command) from error
    seen: set[str] = set()
    users = []
    for topic in sorted(topics):
        paragraphs = {" ".join(text.split()) for text in topics[topic].split("\n\n")}
        long = {text for text in paragraphs if len(text) >= _PARAGRAPH}
        if not long & seen:
            users.append(topic)
            seen |= long
    return {user: topics[user] for user in users[0 if split == "test" else 1 :: 2]}
