"""Numbers, names and links as GitHub-flavoured Markdown."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

from tabulate import tabulate

from benchmark.errors import RecordError
from benchmark.stats import Estimate

DASH = "—"
NBSP = "\u00a0"
_LABEL = 4  # characters of a link's label, more where two would be alike
SPECIAL = re.compile(r"([\\`*_\[\]|~#])")


class Links:
    """Reference-style links from a page to the files of a results folder.

    Every target has one short label, defined once at the end of its section. It is a digest of the
    target, so that a new line of a table changes no other line of the page.

    Args:
        start: the folder the page lies in; targets are written relative to it.
    """

    def __init__(self, start: Path) -> None:
        self._start = start
        self._labels: dict[str, str] = {}
        self._defined = 0

    def to(self, text: str, target: Path) -> str:
        """Return the text as a link, or raise RecordError where its target is not there."""
        if not target.exists():
            raise RecordError(f"{target}: records name this file and lie elsewhere")
        relative = Path(os.path.relpath(target, self._start)).as_posix()
        url = quote(relative, safe="/,=")
        if url not in self._labels:
            self._labels[url] = self._free(sha256(url.encode()).hexdigest())
        return f"[{text}][{self._labels[url]}]"

    def _free(self, digest: str) -> str:
        taken = set(self._labels.values())
        return next(
            digest[:size] for size in range(_LABEL, len(digest)) if digest[:size] not in taken
        )

    def definitions(self) -> str:
        """Return the definitions of the labels given since the last call, a line each."""
        new = list(self._labels.items())[self._defined :]
        self._defined = len(self._labels)
        return "\n".join(f"[{label}]: {url}" for url, label in new)


def digits(score: Estimate) -> Callable[[float], str]:
    """Return how the numbers of an estimate are written: all to the same place.

    Two digits at least of the standard deviation and the mean, four at most of the larger.
    """
    scale = max(abs(score.mean), score.std or 0.0)
    if scale == 0:
        return "{:.0f}".format
    if not 1e-3 <= scale < 1e5:
        return lambda number: f"{number:.1e}" if number else "0"
    places = 3 - _exponent(scale)
    if score.std:
        two_digits = [1 - _exponent(number) for number in (score.std, score.mean) if number]
        places = min(places, max(two_digits))
    places = max(places, 0)
    return lambda number: f"{round(number, places) + 0.0:.{places}f}"  # + 0.0: no -0.0


def spread(score: Estimate) -> str:
    """Return `mean ± std`, kept on one line, or the mean alone of a single trial."""
    write = digits(score)
    return write(score.mean) + ("" if score.std is None else f"{NBSP}±{NBSP}{write(score.std)}")


def mean(score: Estimate) -> str:
    """Return `mean [low, high]`, or the mean alone of a single trial."""
    return f"{digits(score)(score.mean)} {interval(score)}".strip()


def interval(score: Estimate) -> str:
    """Return the 95 % interval in (escaped) brackets; nothing for a single trial."""
    if score.low is None or score.high is None:
        return ""
    write = digits(score)
    return rf"\[{write(score.low)},{NBSP}{write(score.high)}\]"


def code(name: str) -> str:
    """Return a plugin's name as code."""
    return f"`{name.replace('`', '').replace('|', '/')}`"


def stacked(name: str) -> str:
    """Return a plugin's name as code with its arguments beneath, to keep a table narrow."""
    return "<br>".join(code(part) for part in name.split(","))


def prose(text: object) -> str:
    """Return foreign text on one line, with nothing in it that Markdown or HTML would read."""
    line = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return SPECIAL.sub(r"\\\1", line)


def anchor(heading: str) -> str:
    """Return the fragment by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Return a table whose first `words` columns are words and whose others are numbers."""
    aligned = ["left"] * words + ["right"] * (len(headers) - words)
    text: str = tabulate(rows, list(headers), "pipe", disable_numparse=True, colalign=aligned)
    return text


def _exponent(number: float) -> int:
    """Return the power of ten of the first digit, after rounding to two digits."""
    return int(f"{number:.1e}".partition("e")[2])
