"""Numbers, names and links as GitHub-flavoured Markdown."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

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
        self._known: dict[Path, str] = {}
        self._defined = 0

    def to(self, text: str, target: Path) -> str:
        """Return the text as a link, or raise RecordError where its target is not there."""
        if target not in self._known:
            if not target.exists():
                raise RecordError(f"{target}: records name this file and lie elsewhere")
            url = self.url(target)
            self._labels[url] = self._free(sha256(url.encode()).hexdigest())
            self._known[target] = self._labels[url]
        return f"[{text}][{self._known[target]}]"

    def url(self, target: Path) -> str:
        """Return the path of a target from the page, as a link writes it."""
        relative = Path(os.path.relpath(target, self._start)).as_posix()
        return quote(relative, safe="/,=")

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


class Footnotes:
    """Notes at the foot of a page, each told once however often it is marked."""

    def __init__(self) -> None:
        self._told: dict[str, str] = {}

    def mark(self, name: str, text: str | None) -> str:
        """Return the mark of a note; nothing where there is none to tell."""
        if text is None:
            return ""
        self._told[name] = text
        return f"[^{name}]"

    def definitions(self) -> str:
        """Return the notes, a line each."""
        return "\n".join(f"[^{name}]: {text}" for name, text in self._told.items())


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
    return lambda number: f"{number:z.{places}f}"  # z: no -0.0


def spread(score: Estimate) -> str:
    """Return `mean ± std`, kept on one line, or the mean alone of a single trial."""
    write = digits(score)
    return write(score.mean) + ("" if score.std is None else f"{NBSP}±{NBSP}{write(score.std)}")


def whole(score: Estimate) -> str:
    """Return `mean ± std` and beneath it the interval, where there is one."""
    write = digits(score)
    text = write(score.mean) + ("" if score.std is None else f"{NBSP}±{NBSP}{write(score.std)}")
    if score.low is None or score.high is None:
        return text
    return rf"{text}<br>\[{write(score.low)},{NBSP}{write(score.high)}\]"


def mean(score: Estimate) -> str:
    """Return `mean [low, high]`, or the mean alone of under ten trials."""
    return f"{digits(score)(score.mean)} {interval(score)}".strip()


def short(score: Estimate) -> str:
    """Return the mean in three digits or so."""
    number = score.mean
    return f"{number:.1f}" if abs(number) >= 10 else f"{number:.2f}"


def percent(share: float) -> str:
    """Return a share of the whole, in two digits under ten."""
    places = 0 if share >= 0.1 else 1 if share >= 0.01 else 2
    text = f"{100 * share:.{places}f}"
    return (text.rstrip("0").rstrip(".") if places else text) + f"{NBSP}%"


def interval(score: Estimate) -> str:
    """Return the 95 % interval in (escaped) brackets; nothing for under ten trials."""
    if score.low is None or score.high is None:
        return ""
    write = digits(score)
    return rf"\[{write(score.low)},{NBSP}{write(score.high)}\]"


def ranged(ends: Sequence[str]) -> str:
    """Return `low to high` on one line, or the one text that both ends are."""
    return f"{NBSP}to{NBSP}".join(dict.fromkeys(ends))


def code(name: str) -> str:
    """Return a plugin's name as code."""
    return f"`{name.replace('`', '').replace('|', '/')}`"


def lines(name: str) -> str:
    """Return a plugin's name as code, its arguments on lines of their own."""
    return "<br>".join(map(code, name.split(",")))


def stacked(name: str) -> str:
    """Return a plugin's name as code that breaks into short lines, to head a narrow column."""
    return "<br>".join(f"<code>{breakable(part)}</code>" for part in name.split(","))


def breakable(name: str) -> str:
    """Return a name that a line may break within."""
    return name.replace("_", "_<wbr>").replace("=", "=<wbr>")


def prose(text: object) -> str:
    """Return foreign text on one line, with nothing in it that Markdown or HTML would read."""
    line = " ".join(str(text).split()).replace("&", "&amp;").replace("<", "&lt;")
    return SPECIAL.sub(r"\\\1", line)


def grid(headers: Sequence[str], rows: Sequence[Sequence[str]], *, words: int = 1) -> str:
    """Return a table whose first `words` columns are words and whose others are numbers."""
    aligned = [":--"] * words + ["--:"] * (len(headers) - words)
    return "\n".join(f"| {' | '.join(row)} |" for row in [headers, aligned, *rows])


def _exponent(number: float) -> int:
    """Return the power of ten of the first digit, after rounding to two digits."""
    power = math.floor(math.log10(abs(number)))
    return power + (round(abs(number) / 10.0**power, 1) >= 10)
