"""One's own text, by user: a file each, a line of JSON each, or the paragraphs of one file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmark.data.catalogue import Split
from benchmark.data.own import Halves, OwnSet, about, digest
from benchmark.errors import ProtocolError

Texts = tuple[dict[str, str], str]


@dataclass(frozen=True)
class OwnText(OwnSet):
    """Text by user.

    Attributes:
        place: where it was read.
        users: id and text of each, in a fixed order.
    """

    place: str = ""
    users: tuple[tuple[str, str], ...] = ()

    def read(self, split: Split) -> Texts:
        """Return the text of a split by user."""
        rows = self.halves.rows([digest(text) for _, text in self.users], split, self.place)
        return dict(self.users[row] for row in rows), self.place


def own_text(place: Path, halves: Halves) -> OwnText:
    """Return the text of a folder of `.txt` files, of a `.jsonl` file, or of one text file.

    Users are the files; the values of `user`, whose lines are joined; or the paragraphs.

    Raises:
        ProtocolError: no such file, not UTF-8, no text, or a line without `user` and `text`.
    """
    if place.is_dir():
        are, users = "files", {path.name: _said(path) for path in sorted(place.glob("*.txt"))}
    elif place.suffix == ".jsonl":
        are, users = "users of a JSON-lines file", by_user(_lines(place))
    else:
        are, users = "paragraphs of a file", _paragraphs(_said(place))
    return text_set(str(place), are, users, halves)


def text_set(place: str, are: str, users: dict[str, str], halves: Halves) -> OwnText:
    """Return text by user as a set; ProtocolError where it cannot be split in two."""
    made = OwnText(
        **about("text", place),
        users_are=are,
        content=digest("".join(f"{user}\0{text}\0" for user, text in users.items())),
        halves=halves,
        place=place,
        users=tuple(users.items()),
    )
    made.read("test")
    return made


def by_user(said: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return what each user said, joined by empty lines."""
    users: dict[str, list[str]] = {}
    for user, text in said:
        users.setdefault(user, []).append(text)
    return {user: "\n\n".join(texts) for user, texts in users.items()}


def _paragraphs(text: str) -> dict[str, str]:
    parts = (part.strip() for part in text.replace("\r\n", "\n").split("\n\n"))
    return {f"paragraph {n}": part for n, part in enumerate(filter(None, parts), 1)}


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(_said(path).splitlines(), 1):
        if not line.strip():
            continue
        try:
            match json.loads(line):
                case {"user": str() | int() as user, "text": str(text)}:
                    yield str(user), text
                case _:
                    raise ValueError("no user and text")
        except (ValueError, RecursionError) as error:
            said = f"{path}:{number}: {error}; wanted a JSON object with user and text"
            raise ProtocolError(said) from error


def _said(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ProtocolError(f"{path}: {said}; wanted text in UTF-8") from error
