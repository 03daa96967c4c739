"""leaderboard.md, a section a protocol, and the pages beneath it, from the records alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmark import records
from benchmark.errors import RecordError
from benchmark.leaderboard import sections
from benchmark.leaderboard.details import details
from benchmark.leaderboard.markdown import Links, code, prose
from benchmark.leaderboard.pages import pages
from benchmark.leaderboard.part import Part, parts

DETAILS = "README.md"
"""A protocol's page, which a browser of the repository shows with the folder."""
HEADER = """\
# GradLeak leaderboard

How well gradient inversion attacks recover a client's private batch from the update it sends in \
federated learning. `gradleak leaderboard` writes this page from the records in {results} and \
nothing else: every number links to the records it is made of.

- A **cell** is one attack against one defense under one protocol, scored on the protocol's trials.
- `131.2 ± 4.0 (48)` is mean ± standard deviation (trials). A crashed or timed-out trial counts \
with the score of the prior alone, and is named: `(48, 3 failed)`.
- `[low, high]` is a 95 % bootstrap interval of the mean over trials.
- Each heading says which direction is worse for the client. **Bold** is a defense's worst case \
over all attacks.
- **n/a**: the attack does not fit this setting; the ranking gives it the prior-only score on the \
same trials. **unavailable**: data or weights were missing; left out for all. **—**: not run.
- Attacks share a rank where the 95 % interval of their paired difference to the group's leader \
holds zero."""


def write_board(results: Path, output: Path) -> list[str]:
    """Write the leaderboard, and in the results folder a page a protocol and a cell on text.

    The same records give the same bytes.

    Args:
        results: folder of records and frozen protocols, the only input.
        output: the Markdown file; its links are relative to its folder.

    Returns:
        `file:line: what is wrong` of each line that could not be read.

    Raises:
        RecordError: the folder is missing, holds no record, or a frozen protocol is malformed;
            nothing is written then.
    """
    reading = records.read_folder(results)
    if not reading.records:
        damaged = f"; {len(reading.damaged)} lines cannot be read" if reading.damaged else ""
        raise RecordError(f"{results}: no records here; make some by `gradleak run`{damaged}")
    links = Links(output.parent)
    found = parts(results, reading.records, links)
    _write_pages(results, found)  # what links to a page wants it there
    for part in found:
        page = part.folder / DETAILS
        if part.records:
            records.replace(page, details(part.linked(Links(part.folder))))
        else:
            page.unlink(missing_ok=True)
    blocks = [_header(results, found, links, len(reading.damaged))]
    blocks += [_section(part) for part in found]
    records.replace(output, "\n\n".join(blocks) + "\n")
    return reading.damaged


def _write_pages(results: Path, found: Sequence[Part]) -> None:
    written = pages(record for part in found for record in part.records)
    for path in sorted(results.glob("*/*/*.md")):
        if path.relative_to(results) not in written and path.with_suffix(".jsonl").is_file():
            path.unlink()  # its excerpts are no more
    for path, page in written.items():
        records.replace(results / path, page)


def _header(results: Path, found: Sequence[Part], links: Links, damaged: int) -> str:
    folder = links.to(code(results.name or "results"), results)
    blocks = [HEADER.format(results=folder)]
    if damaged:
        blocks.append(f"> **Note:** {damaged} damaged line(s) in the records are left out.")
    return "\n\n".join([*blocks, "## Protocols", sections.contents(found), links.definitions()])


def _section(part: Part) -> str:
    blocks = [
        f"## {prose(part.frozen.heading)}",
        sections.about(part),
        *_warnings(part),
    ]
    if part.records:
        blocks += [
            sections.matrix(part),
            sections.reasons(part, ["not_applicable", "unavailable"]),
            sections.rankings(part),
            f"{part.links.to('All metrics and provenance', part.folder / DETAILS)}.",
        ]
    return "\n\n".join(block for block in [*blocks, part.links.definitions()] if block)


def _warnings(part: Part) -> list[str]:
    """Return what a reader must know before the numbers."""
    notes = []
    if part.stale:
        notes.append(
            f"{part.stale} record(s) were made by another version of this protocol than "
            f"{code(part.frozen.digest)} and are left out."
        )
    sources: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for record in part.records:
        cell = sources.setdefault((record.defense, record.attack), set())
        cell.add((record.attack_digest, record.defense_digest))
    for (defense, attack), digests in sorted(sources.items()):
        if len(digests) > 1:
            notes.append(
                f"{code(attack)} under {code(defense)} mixes {len(digests)} versions of its source."
            )
    return [f"> **Note:** {note}" for note in notes]
