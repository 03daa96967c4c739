"""Text of a data set, by the user who wrote it."""

from __future__ import annotations

import hashlib
import platform
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from benchmark.data.catalogue import Entry, Split, known
from benchmark.data.own import OwnSet
from benchmark.data.places import check_digest, mirror_folder, reading
from benchmark.data.text_readers import READERS
from benchmark.errors import ProtocolError


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


def load_text(name: str | Entry, split: Split, mirror: Path | None = None) -> TextSet:
    """Return a split by user, kept in memory for the next call.

    Args:
        name: in the catalogue; or the entry of a set that is in none.
        split: `train` or `test`.
        mirror: folder of local copies; else the environment's GRADLEAK_DATA.

    Raises:
        ProtocolError: no such text set or split, or a set of tokens that are no text.
        DataUnavailable: it cannot be had here.
        BenchmarkError: the content is not what the catalogue says.
    """
    found = known(name, "text", split)
    if not isinstance(found, OwnSet) and found.name not in READERS:
        raise ProtocolError(f"data set {found.name!r} holds tokens and no text; wanted load_tokens")
    return _load(found, split, mirror_folder(mirror))


@lru_cache(maxsize=16)
def _load(found: Entry, split: Split, mirror: Path | None) -> TextSet:
    with reading(found):
        read = found.read if isinstance(found, OwnSet) else None
        users, origin = read(split) if read else READERS[found.name](found, split, mirror)
    content = "".join(f"{user}\0{text}\0" for user, text in users.items())
    digest = hashlib.sha256(content.encode()).hexdigest()
    # The help topics come with Python, and change with it.
    key = f"{split} {platform.python_version()}" if found.name == "pydoc" else split
    check_digest(found, key, digest, origin)
    return TextSet(found.name, split, users)
