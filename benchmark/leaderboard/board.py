"""leaderboard.md, its picture, and the pages beneath it, from the records alone."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from pathlib import Path

import pandas as pd
from threadpoolctl import threadpool_limits

from benchmark.errors import RecordError
from benchmark.leaderboard import holding, matrices, studies, summary
from benchmark.leaderboard.believed import believed
from benchmark.leaderboard.costs import Costs, costs, losses
from benchmark.leaderboard.given import given
from benchmark.leaderboard.groups import ThreatGroup, groups
from benchmark.leaderboard.markdown import Footnotes, Links, code, prose
from benchmark.leaderboard.models import models
from benchmark.leaderboard.picture import picture
from benchmark.leaderboard.section import DOUBTS, Doubts, Section, labels, sections
from benchmark.leaderboard.telling import tell
from benchmark.leaderboard.verified import folders
from benchmark.outputs import canaries_of
from benchmark.prices import prices_file
from benchmark.records import replace
from benchmark.registry import Registry

SIGNATURE = "<!-- written by gradleak leaderboard -->"
"""The last line of every page, by which a page of protocols no more recorded is known as ours."""
PICTURE = "summary.svg"
_ROOM = 1_000  # bytes of matrices on the board; suites beyond it have a page of their own
OPENING = """\
# GradLeak leaderboard

What a server learns of a client's private batch from the update it sends in federated learning: \
{cells:,} cells (an attack against a defense in a protocol), {trials:,} trials, {protocols} \
protocols. `gradleak leaderboard` writes this page from the records in {results}, and every number \
links to the records it is made of; a protocol's name leads to its page, with every cell, metric \
and reason. [How to read it](#how-to-read-it).{reproduced}"""
REPRODUCED = " [Published numbers beside ours]({page})."
PICTURED = """\
![Scores of every attack undefended, and of every defense in the worst case]({picture})

A dot is a protocol, hollow where under ten trials; the grey band is what the prior alone scores. \
Red leaks, green holds, grey is open; a defense's row holds all its strengths."""
READING = """\
- `131.2 [129.4, 133.1]` is a mean over trials with its 95 % bootstrap interval; of under ten \
trials no interval is told, their number stands behind, `131.2 (4)`, and nothing is ranked. A \
crashed or timed-out trial counts with the score of the prior alone ({failed} of {trials:,} trials).
- **First in** 3 of 4: the attack ranks in four protocols where nothing defends and another ranks \
too, and in three of them it tells more than the prior alone and no attack is better. \
A rank is one more than the attacks that are better on the same trials, \
by sign flips of the paired differences; of all pairs of a ranking called different, at most 5 % \
are expected to be so by chance (Benjamini-Hochberg).
- **Gradients**: the most that one trial took of the victim. A search that took fewer than in its \
paper's experiments is told with the share (`2 %`), and not ranked against those that had theirs.
- **Rate**: tuned, the learning rate at which the search's own objective fell lowest on batches of \
the public split, of the same factors of its default for every attack (`gradleak tune`); else the \
default. Where the tuned one ran, other rates are not ranked.
- **Prior alone** knows the public mean image, or the commonest tokens, and nothing of the \
update."""


CLAIMED = """\
- **Self-reported**: an attack from outside the repository. It is ranked, and counts for a worst \
case, once a verified run under a secret key bears it out on canaries, private batches that no \
data set holds. **Flagged**: one that leads the prior alone by more on public trials than on \
canaries, beyond both intervals and what honest attacks differ by. The protocols' pages tell both \
leads."""


def write_board(
    results: Path,
    output: Path,
    count: Callable[[pd.DataFrame], Doubts] | None = None,
    verified: Path | None = None,
) -> list[str]:
    """Write the leaderboard, and beside it a folder of its name with a page a protocol.

    The same records give the same bytes. Of pages in that folder those this function wrote before
    and has no records for are removed, and no others.

    Args:
        results: folder of records, frozen protocols and tunings, the only input.
        output: the Markdown file; its links are relative to its folder.
        count: counts, in a protocol's records, those of each attack that are in doubt.
        verified: folder of the verified runs that they are held against; None is the usual one.

    Returns:
        `file:line: what is wrong` of what could not be read, and of what cannot be true.

    Raises:
        RecordError: the folder is missing, holds no record, or a frozen protocol is malformed;
            nothing is written then.
    """
    registry = Registry()  # a plugin is nobody's but its author's
    table = believed(results, registry)
    if table.frame.empty:
        damaged = f"; {len(table.damaged)} lines cannot be read" if table.damaged else ""
        raise RecordError(f"{results}: no records here; make some by `gradleak run`{damaged}")
    known = given(labels(table.frame), registry)
    folder = output.with_suffix("")
    with threadpool_limits(limits=1):  # products are small: more threads wait for one another
        runs = folders(verified or canaries_of(results))
        found = sections(results, table.frame, known, count or (lambda _: {}), runs)
        written = tell(found, results, output)
    if any(section.summaries for section in found):
        written[folder / PICTURE] = picture(found)
    apart = _without_room(found, folder)
    for name, own in apart.items():
        written[_page(folder, name)] = _suite(folder, name, own)
    drawn = studies.studies(found)
    for study in drawn:
        written[folder / f"{study.page}.md"] = study.told(Links(folder), output)
        written[folder / f"{study.page}.svg"] = study.pictured()
    priced = costs(results, found)
    for one in priced:
        written[folder / f"{one.page}.md"] = one.told(Links(folder), output, prices_file(results))
        if one.sections:
            written[folder / f"{one.page}.svg"] = one.pictured()
    threats, lost = summary.threats(found), losses(priced, results)
    headed = [(summary.heading(group), group) for group in threats]
    if strengths := holding.strengths(headed, lost, Links(folder), output):
        written[folder / holding.PAGE] = strengths
    bad = len(table.damaged)
    written[output] = _board(
        results, output, found, threats, lost, drawn, priced, apart, damaged=bad
    )
    for path, text in written.items():
        replace(path, text if path.suffix == ".svg" else f"{text}\n{SIGNATURE}\n")
    for path in folder.glob("*.md"):
        if path not in written and path.read_text(encoding="utf-8").endswith(f"{SIGNATURE}\n"):
            path.unlink()
    return table.damaged


def _board(
    results: Path,
    output: Path,
    found: Sequence[Section],
    threats: Sequence[ThreatGroup],
    lost: holding.Lost,
    drawn: Sequence[studies.Study],
    priced: Sequence[Costs],
    apart: Container[str],
    *,
    damaged: int,
) -> str:
    links, notes, folder = Links(output.parent), Footnotes(), output.with_suffix("")
    cells = [cell for section in found for cell in section.summaries]
    counts = {
        "cells": len(cells),
        "trials": sum(cell.n for cell in cells),
        "failed": sum(cell.failed for cell in cells),
        "protocols": sum(bool(section.summaries) for section in found),
    }
    where = links.to(code(results.name or "results"), results)
    blocks = [
        OPENING.format(results=where, reproduced=_reproduced(output), **counts),
        summary.glance(threats, lost, links),
        PICTURED.format(picture=links.url(folder / PICTURE)) if cells else "",
        "## Which attack is strongest?",
        "Where nothing defends. Marked are differences from the papers.",
    ]
    for group in threats:
        blocks += [summary.heading(group), summary.attacks(group, links, notes)]
    blocks += ["## Which defense holds?", holding.HOLDS]
    for group in groups(found, lambda section: section.track):
        if table := holding.table(group, lost, links, folder / holding.PAGE):
            blocks += [f"**{group.track}** · {prose(group.unit)}", table]
    if priced:
        blocks.append("## What does a defense cost?")
    for one in priced:
        page = links.url(folder / f"{one.page}.md")
        blocks.append(f"[{prose(one.protocol.title)}]({page}): {one.sentence()}")
    blocks.append("## What does it mean for a model like mine?")
    for track, table in models(found, links).items():
        blocks += [f"**{track}**", table]
    if drawn:
        pages = [(links.url(folder / f"{study.page}.md"), study.title) for study in drawn]
        blocks += ["## How far does it carry?", "\n".join(f"- [{t}]({url})" for url, t in pages)]
    for name, own in matrices.suites(found).items():
        blocks.append("#" + _title(name))
        if name in apart:
            page = links.url(_page(folder, name))
            told = "1 protocol, on its" if len(own) == 1 else f"{len(own)} protocols, on their"
            blocks.append(f"[{told} own page]({page}).")
        else:
            blocks += _matrices(own, links, folder)
    blocks += ["## How to read it", READING.format(**counts)]
    blocks += [CLAIMED] if any(section.claims or section.held for section in found) else []
    blocks += _notes(found, damaged)
    return "\n\n".join(filter(None, [*blocks, notes.definitions(), links.definitions()])) + "\n"


def _reproduced(output: Path) -> str:
    """Return where published numbers stand, if `gradleak reproduce` wrote them beside the board."""
    page = output.with_name("reproduction.md")
    return REPRODUCED.format(page=page.name) if page.is_file() else ""


def _without_room(found: Sequence[Section], folder: Path) -> dict[str, list[Section]]:
    """Return the suites whose matrices the board has no room for, after those with most cells."""
    apart, left = {}, _ROOM
    for name, own in matrices.suites(found).items():
        size = len("".join(_matrices(own, Links(folder), folder)).encode())
        if size > left:
            apart[name] = own
        else:
            left -= size
    return apart


def _suite(folder: Path, name: str, own: Sequence[Section]) -> str:
    """Return the page of a suite whose matrices the board has no room for."""
    links = Links(folder)
    blocks = [_title(name), *_matrices(own, links, folder), links.definitions()]
    return "\n\n".join(filter(None, blocks)) + "\n"


def _matrices(own: Sequence[Section], links: Links, folder: Path) -> list[str]:
    blocks = []
    for group in groups(own, lambda section: section.track):
        blocks.append(f"**{group.track}** · {prose(group.unit)}")
        blocks += matrices.matrices(group, links, folder)
    return blocks


def _title(name: str) -> str:
    return f"# Suite `{name}`" if name else "# Protocols of no suite"


def _page(folder: Path, name: str) -> Path:
    return folder / f"suite_{name}.md" if name else folder / "no_suite.md"


def _notes(found: Sequence[Section], damaged: int) -> list[str]:
    """Return what of the records does not stand, and where it is told."""
    lines = []
    if damaged:
        lines.append(f"{damaged} damaged line(s) in the records are left out.")
    if stale := sum(section.stale for section in found):
        lines.append(
            f"{stale} record(s) were made by other versions of protocols and are left out."
        )
    for doubt, words in DOUBTS.items():
        if count := sum(sum(section.doubts.get(doubt, {}).values()) for section in found):
            lines.append(f"{count} record(s) are {words}. The pages say which.")
    return [f"> **Note:** {line}" for line in lines]
