"""The promises that are read, not run: what a submission says of itself."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from benchmark.conformance.rows import Broken, NotAsked, Row, ask, line_of
from benchmark.manifest import MANIFEST
from benchmark.registry import Submission

_NAMED = re.compile(r"[A-Z][A-Za-zÀ-ž]{2,}|\d{4}\.\d{4,5}")  # authors and methods; of arXiv


def words(submission: Submission) -> Iterator[Row]:
    """Ask a submission that may not even load for the promises that are read; the last is loading.

    The rows stop where it does not load.
    """
    folder = submission.folder
    yield ask("says what it is", lambda: _manifest(submission), folder, MANIFEST)
    made: list[Any] = []
    yield (loads := ask("loads", lambda: made.append(submission.build()), folder, None))
    if loads.answer == "fail":
        return
    kind = type(made[0])
    place = line_of(kind, folder)
    yield ask("is a frozen dataclass", lambda: _frozen(kind), folder, place)
    yield ask("names its source", lambda: _source(submission, kind), folder, place)


def _manifest(submission: Submission) -> None:
    manifest = submission.manifest
    if not manifest.title.strip():
        raise Broken("title: wanted a line on what it does")
    if len({repr(sorted(each.items())) for each in manifest.variants}) < len(manifest.variants):
        raise Broken("variants: one stands twice")
    if submission.outside and manifest.control:
        raise Broken("control: a yardstick is the repository's own")


def _frozen(kind: type) -> None:
    parameters = getattr(kind, "__dataclass_params__", None)
    if parameters is None or not parameters.frozen:
        raise Broken(f"{kind.__name__} is no frozen dataclass; wanted @dataclass(frozen=True)")


def _source(submission: Submission, kind: type) -> None:
    """Look for what `paper` says in the docstring: an author, a method, or that it is derived."""
    said = " ".join(filter(None, (sys.modules[kind.__module__].__doc__, vars(kind).get("__doc__"))))
    if not said.strip() or said.startswith(f"{kind.__name__}("):  # a dataclass's own
        raise Broken("no docstring; wanted one line on how it works, and its source")
    paper = submission.manifest.paper
    if paper is None:
        raise NotAsked(f"{MANIFEST} names no paper")
    wanted = _NAMED.findall(paper) or [re.split(r"[,;]", paper)[0]]
    if not any(word in said for word in wanted):
        raise Broken(f"the docstring does not name its source; {MANIFEST}: paper: {paper}")
