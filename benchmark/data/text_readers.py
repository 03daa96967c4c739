"""Readers of text sets: each returns the text of a split by user, and where it was found."""

from __future__ import annotations

import contextlib
import gzip
import json
import platform
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from benchmark.data.catalogue import Entry
from benchmark.data.hub import hub_file
from benchmark.data.places import mirror_file
from benchmark.errors import BenchmarkError, DataUnavailable

Texts = tuple[dict[str, str], str]
"""Text by user id in a fixed order, and the file, package or repository it was read from."""

_PARAGRAPH = 40  # characters from which a repeated paragraph is no accident
_TITLE = re.compile(r"= ([^=].*) =")  # of an article; sections have more equals signs
_User = TypeVar("_User")


def read_pydoc(found: Entry, split: str, mirror: Path | None) -> Texts:
    """Return every second help topic of those that repeat no paragraph of an earlier one."""
    try:
        from pydoc_data.topics import topics
    except ImportError as error:
        command = "install Python with its standard library in full"
        raise DataUnavailable(found.name, ["pydoc_data.topics"], command) from error
    seen: set[str] = set()
    users: dict[str, str] = {}
    for topic in sorted(topics):
        paragraphs = {" ".join(text.split()) for text in topics[topic].split("\n\n")}
        long = {text for text in paragraphs if len(text) >= _PARAGRAPH}
        if not long & seen:
            users[topic] = topics[topic]
            seen |= long
    return _half(users, split), f"Python {platform.python_version()}"


def read_wikitext(found: Entry, split: str, mirror: Path | None) -> Texts:
    """Return WikiText-2 by article, from the mirror or the hub; lines are stripped."""
    stem = "valid" if split == "train" else "test"
    try:
        path = mirror_file(found.name, f"text/wikitext2/{stem}.txt", mirror)
    except DataUnavailable as missing:
        try:
            return read_hub_articles(found, split, mirror)
        except DataUnavailable as error:
            command = f"{missing.command} or {error.command}"
            raise DataUnavailable(found.name, [*missing.tried, *error.tried], command) from error
    with _reported(path, "articles in UTF-8"):
        return _articles(path.read_text(encoding="utf-8").split("\n")), str(path)


def read_hub_articles(found: Entry, split: str, mirror: Path | None) -> Texts:
    """Return as many first articles of the hub's file as the catalogue says."""
    assert found.hub is not None
    path = hub_file(found, split, mirror)

    import datasets  # seconds, so only once there is a file

    lines = datasets.Dataset.from_parquet(str(path))[found.hub.columns[0]][:]
    articles = dict(islice(_articles(lines).items(), found.size[split]))
    return articles, f"{found.hub.repository}@{found.hub.revision}"


def read_shakespeare(found: Entry, split: str, mirror: Path | None) -> Texts:
    """Return every second speaker, in the order of appearance, speeches joined by lines."""
    path = mirror_file(found.name, "text/shakespeare/input.txt", mirror)
    speeches: dict[str, list[str]] = {}
    with _reported(path, "speeches in UTF-8"):
        for part in re.split(r"\n{2,}", path.read_text(encoding="utf-8").strip()):
            name, _, speech = part.partition("\n")
            # Upper case: the plays write Nurse and NURSE, and one speaker is in one split.
            speeches.setdefault(name.removesuffix(":").upper(), []).append(speech)
    return _half({name: "\n".join(said) for name, said in speeches.items()}, split), str(path)


def read_stackexchange(found: Entry, split: str, mirror: Path | None) -> Texts:
    """Return every second author, posts joined by an empty line."""
    path = mirror_file(found.name, "text/stackexchange_users/users.jsonl.gz", mirror)
    with _reported(path, "gzipped JSON lines of site, user_id and posts"):
        users = {
            f"{author['site']} {author['user_id']}": _joined(author["posts"])
            for author in _json_lines(path)
        }
    return _half(users, split), str(path)


def read_stackoverflow(found: Entry, split: str, mirror: Path | None) -> Texts:
    """Return every second artificial block, posts joined by an empty line."""
    path = mirror_file(found.name, "text/stackoverflow/posts.jsonl.gz", mirror)
    with _reported(path, "gzipped JSON lines of id and text"):
        posts = {post["id"]: post for post in _json_lines(path)}
    path = mirror_file(found.name, "text/stackoverflow/blocks.json", mirror)
    with _reported(path, "JSON of the posts of each block"):
        blocks = json.loads(path.read_bytes())
        users = {
            name: _joined(posts[post] for post in block["posts"]) for name, block in blocks.items()
        }
    return _half(users, split), str(path.parent)


READERS: dict[str, Callable[[Entry, str, Path | None], Texts]] = {
    "pydoc": read_pydoc,
    "wikitext": read_wikitext,
    "wikitext103": read_hub_articles,
    "shakespeare": read_shakespeare,
    "stackexchange": read_stackexchange,
    "stackoverflow": read_stackoverflow,
}
"""The reader of each set whose content is text."""


def _half(users: Mapping[str, _User], split: str) -> dict[str, _User]:
    return dict(islice(users.items(), 0 if split == "test" else 1, None, 2))


def _articles(lines: Iterable[str]) -> dict[str, str]:
    """Return text by article, the heading first; ids have a number, for titles repeat."""
    stripped = ["", *(line.strip() for line in lines), ""]
    articles: list[tuple[str, list[str]]] = []
    for before, line, after in zip(stripped, stripped[1:], stripped[2:], strict=False):
        # A heading stands alone; formulas also have equals signs at both ends.
        if (title := _TITLE.fullmatch(line)) and not before and not after:
            articles.append((f"{len(articles)} {title[1]}", []))
        if line and articles:
            articles[-1][1].append(line)
    return {name: "\n".join(text) for name, text in articles}


def _joined(posts: Iterable[Mapping[str, str]]) -> str:
    return "\n\n".join(post["text"] for post in posts)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


@contextlib.contextmanager
def _reported(path: Path, wanted: str) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, ValueError, LookupError, TypeError, zlib.error) as error:
        raise BenchmarkError(f"{path}: {error}; wanted {wanted}") from error
