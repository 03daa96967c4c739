"""A page for each cell on text: its scores, and truth beside reconstruction trial by trial."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from urllib.parse import quote

from benchmark import stats
from benchmark.leaderboard.markdown import DASH, SPECIAL, code, grid, interval, prose, spread
from benchmark.metrics import METRICS
from benchmark.records import Excerpt, Record, cell_path

MOST_TRIALS = 8
MISSING, LINE_END = "·", "⏎"
UNSAFE = re.compile(rf"{SPECIAL.pattern}|[&<>$:]")  # the last two make formulas and links
LEGEND = f"""\
The first sequence of each trial, 64 tokens of it at most. <b>Bold</b>: the token is exact, in id \
and place. <ins>Underlined</ins>: the attack vouches for it. `{MISSING}`: the attack has no token \
here. `{LINE_END}`: a line ends."""


def pages(records: Iterable[Record]) -> dict[Path, str]:
    """Return the pages of all cells with excerpts; the same records give the same text.

    Args:
        records: of any cells in any order; the later of two records of one trial counts.

    Returns:
        `<protocol>/<defense>/<attack>.md`, relative to the results folder, to Markdown.
    """
    found: dict[Path, dict[tuple[int, int], Record]] = {}
    for one in records:
        path = cell_path(Path(), one.protocol, one.defense, one.attack)
        found.setdefault(path, {})[one.seed, -1 if one.trial is None else one.trial] = one
    cells = {path: [of[key] for key in sorted(of)] for path, of in sorted(found.items())}
    return {
        path.with_suffix(".md"): _page(path, cell)
        for path, cell in cells.items()
        if any(one.excerpt for one in cell)
    }


def _page(path: Path, cell: list[Record]) -> str:
    """Return the page of one cell, whose records lie at a path beside it."""
    shown = [(one, one.excerpt) for one in cell if one.excerpt]
    file, first = quote(path.name, safe=",="), cell[0]
    blocks = [
        f"# {code(first.attack)} under {code(first.defense)}",
        f"Protocol {code(first.protocol)}; {prose(cell[-1].threat)}. [Records]({file}).",
        "## Scores",
        _scores(cell),
        "## What is read",
        LEGEND,
        *(_trial(one, excerpt) for one, excerpt in shown[:MOST_TRIALS]),
    ]
    if len(shown) > MOST_TRIALS:
        blocks.append(f"… {len(shown) - MOST_TRIALS} more in [the records file]({file}).")
    return "\n\n".join(blocks) + "\n"


def _scores(cell: list[Record]) -> str:
    """Return every metric's mean over the trials, with its direction."""
    names = list(dict.fromkeys(name for one in cell for name in one.metrics))
    (counted,) = stats.cells(stats.table(cell, names), names, cell[0].protocol)
    rows = []
    for name in names:
        metric, score = METRICS.get(name), counted.scores.get(name)
        numbers = [spread(score), interval(score), str(score.n)] if score else [DASH] * 3
        rows.append([code(name), prose(metric.description if metric else DASH), *numbers])
    table = grid(["Metric", "What it is", "Mean ± std", "95 % interval", "n"], rows, words=2)
    failed = f"\n\n{counted.failed} failed trial(s) count as the prior." if counted.failed else ""
    return table + failed


def _trial(one: Record, excerpt: Excerpt) -> str:
    """Return one trial: how much of its excerpt is exact, and the two texts side by side."""
    status = "" if one.status == "completed" else f" ({one.status.replace('_', ' ')})"
    plain = [False] * len(excerpt.truth)
    row = [
        _marked(excerpt.truth, plain, plain),
        _marked(excerpt.answer, excerpt.exact, excerpt.certain or plain),
    ]
    exact = f"{sum(excerpt.exact)} of {len(excerpt.exact)} exact"
    title = f"### Trial {one.trial}, seed {one.seed}: {exact}{status}"
    return f"{title}\n\n| Truth | Reconstruction |\n|:--|:--|\n| {row[0]} | {row[1]} |"


def _marked(pieces: Iterable[str], exact: Iterable[bool], certain: Iterable[bool]) -> str:
    """Return pieces as one line; HTML, for asterisks do not nest inside words or at quotes."""
    line = ""
    marked = zip(pieces, exact, certain, strict=True)
    for (bold, underlined), run in groupby(marked, key=lambda one: one[1:]):
        text = "".join(_readable(piece) for piece, *_ in run)
        body = text.lstrip(" ")
        line += " " * (len(text) - len(body))
        for tag in ["b"] * bold + ["ins"] * underlined:
            body = f"<{tag}>{body}</{tag}>" if body else ""
        line += body
    return line.strip(" ")


def _readable(piece: str) -> str:
    """Return a piece on one line, with nothing in it that Markdown or HTML would read."""
    if not piece:
        return f" {MISSING}"
    printable = "".join(map(_printable, piece.replace("\r\n", "\n")))
    return UNSAFE.sub(lambda found: f"&#{ord(found[0])};", printable)


def _printable(character: str) -> str:
    """Return a character that takes its place in a line and shows."""
    if character.isprintable():
        return character
    if character.splitlines() == [""]:
        return LINE_END
    return " " if character.isspace() else "\ufffd"
