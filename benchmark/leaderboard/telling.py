"""The pages of all protocols, each told apart from the others; of many records on every core."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Sequence
from pathlib import Path

from benchmark.leaderboard.excerpts import excerpt_pages
from benchmark.leaderboard.markdown import Links
from benchmark.leaderboard.page import page
from benchmark.leaderboard.section import Section
from benchmark.records import read_excerpts

MANY = 200_000
"""Rows from which on processes are worth their start."""
_work: tuple[Sequence[Section], Path, Path] | None = None
"""Sections, results and board: what forked processes find as their parent left it."""


def tell(found: Sequence[Section], results: Path, output: Path) -> dict[Path, str]:
    """Return the pages of protocols; their rankings are kept in the sections.

    Args:
        found: the protocols' sections.
        results: the folder of records, in which excerpts are read.
        output: the board, beside which pages lie.
    """
    global _work
    _work = found, results, output
    many = sum(len(section.frame) for section in found) >= MANY
    if many and "fork" in multiprocessing.get_all_start_methods():
        with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
            told = pool.map(_tell, range(len(found)), chunksize=1)
    else:
        told = [_tell(place) for place in range(len(found))]
    pages: dict[Path, str] = {}
    for section, (texts, rankings) in zip(found, told, strict=True):
        vars(section).update(rankings)
        pages |= texts
    return pages


def _tell(place: int) -> tuple[dict[Path, str], dict[str, object]]:
    """Return one protocol's pages by file, and what was computed for them that the board needs."""
    assert _work is not None
    found, results, output = _work
    section, folder = found[place], output.with_suffix("")
    texts: dict[Path, str] = {}
    if len(section.frame) and section.frame["has_excerpt"].any():
        texts = excerpt_pages(section, read_excerpts(results, section.name), output, folder)
    text = page(section, Links(folder), output, list(texts))
    rankings = {"undefended": section.undefended, "overall": section.overall}
    return texts | {folder / f"{section.name}.md": text}, dict(rankings)
