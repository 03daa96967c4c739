"""What was read of a protocol's texts: truth beside reconstruction, trial by trial."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from benchmark.leaderboard.markdown import SPECIAL, Links, code, grid, prose, spread
from benchmark.leaderboard.section import Section
from benchmark.metrics import Excerpt
from benchmark.records import Record

MOST_TRIALS = 8
LARGEST_PAGE = 200_000
"""Characters; what would be longer is told on a page an attack."""
MISSING, LINE_END = "·", "⏎"
UNSAFE = re.compile(rf"{SPECIAL.pattern}|[&<>$:]")  # the last two make formulas and links
LEGEND = f"""\
The first sequence of each trial, 64 tokens of it at most. <b>Bold</b>: the token is exact, in id \
and place. <ins>Underlined</ins>: the attack vouches for it. `{MISSING}`: the attack has no token \
here. `{LINE_END}`: a line ends."""


def excerpt_pages(
    section: Section, told: Iterable[Record], board: Path, folder: Path
) -> dict[Path, str]:
    """Return the pages of a protocol's texts by path: one, or one an attack where it is too long.

    Args:
        section: the protocol's part.
        told: its records with excerpts in any order of trials; the later of two of one counts.
        board: the board that the pages belong to.
        folder: where the pages will lie.
    """
    found: dict[tuple[str, str], dict[tuple[int, int], tuple[Record, Excerpt]]] = {}
    for one in told:
        if one.excerpt is not None and one.trial is not None:
            cell = found.setdefault((one.attack, one.defense), {})
            cell[one.seed, one.trial] = one, one.excerpt
    cells = {key: [trials[each] for each in sorted(trials)] for key, trials in found.items()}
    attacks = [*section.attacks(control=False), *section.attacks(control=True)]
    order = [(a, d) for a in attacks for d in section.defenses if (a, d) in cells]
    whole = folder / f"{section.name}_text.md"
    texts = {whole: _page(section, {key: cells[key] for key in order}, board, folder)}
    if len(texts[whole]) > LARGEST_PAGE:
        texts = {
            folder / f"{section.name}_text_{attack}.md": _page(
                section, {key: cells[key] for key in mine}, board, folder
            )
            for attack, mine in groupby(order, key=lambda key: key[0])
        }
    return texts if order else {}


Trials = Sequence[tuple[Record, Excerpt]]


def _page(section: Section, cells: dict[tuple[str, str], Trials], board: Path, folder: Path) -> str:
    links = Links(folder)
    up = f"[{prose(section.frozen.title)}]({links.url(folder / f'{section.name}.md')})"
    blocks = [
        f"# What was read: {prose(section.frozen.heading)}",
        f"{up} · [The board]({links.url(board)}). {prose(section.threat)}.",
        LEGEND,
    ]
    for (attack, defense), trials in cells.items():
        blocks += _cell(section, attack, defense, trials, links)
    return "\n\n".join([*blocks, links.definitions()]) + "\n"


def _cell(section: Section, attack: str, defense: str, trials: Trials, links: Links) -> list[str]:
    """Return a heading, the score, and the first trials of a cell side by side."""
    score, file = section.score(defense, attack), section.file(attack)
    scored = "" if score is None else f"{section.unit} {links.to(spread(score), file)}. "
    more = len(trials) - MOST_TRIALS
    rest = f"{more} more in {links.to('the records', file)}." if more > 0 else ""
    rows = [_trial(one, excerpt) for one, excerpt in trials[:MOST_TRIALS]]
    return [
        f"## {code(attack)} under {code(defense)}",
        *([f"{scored}{rest}".strip()] if scored or rest else []),
        grid(["Trial", "Exact", "Truth", "Reconstruction"], rows, words=4),
    ]


def _trial(one: Record, excerpt: Excerpt) -> list[str]:
    """Return one trial: how much of its excerpt is exact, and the two texts side by side."""
    status = "" if one.status == "completed" else f" ({one.status.replace('_', ' ')})"
    plain = [False] * len(excerpt.truth)
    return [
        f"{one.trial}, seed {one.seed}{status}",
        f"{sum(excerpt.exact)} of {len(excerpt.exact)}",
        _marked(excerpt.truth, plain, plain),
        _marked(excerpt.answer, excerpt.exact, excerpt.certain or plain),
    ]


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
