"""A protocol's page: its defenses, its attacks, each against each, and why some did not run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from benchmark import stats
from benchmark.leaderboard.details import all_metrics, claims, provenance
from benchmark.leaderboard.markdown import (
    DASH,
    NBSP,
    Links,
    code,
    grid,
    mean,
    percent,
    prose,
    spread,
    stacked,
)
from benchmark.leaderboard.ranking import Ranking
from benchmark.leaderboard.section import DOUBTS, NONE, Outcome, Section
from benchmark.stats import CellSummary

VERDICTS = {"not_applicable": "n/a", "unavailable": "unavailable"}
MARKS: dict[Outcome, str] = {"leaks": "🟥", "holds": "🟢", "open": "⬜"}
"""Told apart by shape as well as by colour."""
WIDEST = 6
"""Defenses beside one another."""
CONTROLS = "Controls are yardsticks, not attacks: no ranking or worst case counts them."


def page(section: Section, links: Links, board: Path, texts: Sequence[Path]) -> str:
    """Return the page of a protocol.

    Args:
        section: the protocol's part.
        links: from the folder of the page.
        board: the board it belongs to.
        texts: pages of truth beside reconstruction.
    """
    blocks = [f"# {prose(section.frozen.heading)}", *about(section, links, board, texts)]
    blocks += [f"> **Note:** {note}" for note in notes(section)]
    if section.summaries:
        blocks += [
            f"## Defenses, by {section.unit} in the worst case",
            defenses(section, links),
            privacy(section),
            "## Attacks",
            ranking(section, links),
            f"## Every attack, {section.unit}",
            matrix(section, links),
            claims(section),
            reasons(section, ["not_applicable", "unavailable"]),
            "## What differs from the papers",
            deviations(section),
            "## All metrics",
            all_metrics(section, links),
            reasons(section, ["failed", "timed_out"]),
            "## Provenance",
            provenance(section),
        ]
    return "\n\n".join(block for block in [*blocks, links.definitions()] if block) + "\n"


def about(section: Section, links: Links, board: Path, texts: Sequence[Path]) -> list[str]:
    """Return what the protocol is, and the way to what belongs to it."""
    described = section.frozen.content.get("description")
    whole = links.to("All of it", section.folder / "protocol.json")
    ways = [f"[The board]({links.url(board)})"]
    ways += [f"[{_text(text, section)}]({links.url(text)})" for text in texts]
    setting = f"Setting: {section.frozen.setting()} {whole}."
    return [*([prose(described)] if described else []), setting, " · ".join(ways)]


def _text(text: Path, section: Section) -> str:
    attack = text.stem.removeprefix(f"{section.name}_text").lstrip("_")
    return f"what {code(attack)} read" if attack else "What was read"


def notes(section: Section) -> list[str]:
    """Return what a reader must know before the numbers."""
    found = []
    if (own := section.frozen.own_data) is not None:
        found.append(f"Own data, {prose(own)}: nobody without them can make these numbers again.")
    if section.stale:
        found.append(
            f"{section.stale} record(s) were made by another version of this protocol than "
            f"{code(section.frozen.digest)} and are left out."
        )
    for doubt, words in DOUBTS.items():
        for attack, count in sorted(section.doubts.get(doubt, {}).items()):
            found.append(f"{count} record(s) of {code(attack)} are {words}.")
    for attack, count in sorted(section.dirty.items()):
        found.append(
            f"{count} record(s) of {code(attack)} were made from a checkout with changes of its "
            "own, which no commit holds, and it is not ranked."
        )
    versions = ["attack_version", "defense_version"]
    cells = section.frame.groupby(["defense", "attack"], observed=True)[versions].nunique()
    for defense, attack, count in cells.max(axis=1).reset_index().itertuples(index=False):
        if count > 1:
            found.append(f"{code(str(attack))} under {code(str(defense))} mixes {count} versions.")
    return found


def defenses(section: Section, links: Links) -> str:
    """Return each defense's worst case, and whether it holds."""
    rows = []
    for name in section.defenses:
        cell = section.worst.get(name)
        if cell is None:
            rows.append([code(name), *[DASH] * 6])
            continue
        score = cell.scores[section.primary]
        worst = links.to(mean(score), section.file(cell.attack))
        lead = DASH if cell.lead is None else links.to(mean(cell.lead), section.file(cell.attack))
        outcome = section.outcome(name)
        rows.append(
            [
                code(name),
                f"{MARKS[outcome]}{NBSP}{outcome}",
                code(cell.attack),
                knows(section, name),
                worst,
                lead,
                str(score.n),
            ]
        )
    headers = ["Defense", "", "Worst case by", "Of those that know it"]
    headers += ["It reads", "More than the prior alone", "Trials"]
    return grid(headers, rows, words=4)


def privacy(section: Section) -> str:
    """Return what differential privacy the defenses promise, nothing where none does."""
    said = section.frame.groupby("defense", observed=True)["description"].last()
    promised = []
    for name, told in said.items():
        description = json.loads(told)
        if (epsilon := description.get("epsilon")) is not None:
            promised.append(
                f"{code(str(name))} is ({epsilon:,.1f}, {description['delta']:g})-private over "
                f"{description['rounds']:,} rounds at a sampling rate of "
                f"{description['sampling_rate']:g}"
            )
    if not promised:
        return ""
    return f"Epsilon and delta: {'; '.join(promised)}. No other defense here has an epsilon."


def knows(section: Section, defense: str) -> str:
    """Return the strongest attack that knows a defense, and whether the worst case is reliable."""
    if defense == NONE:
        return DASH
    known = section.adaptive(defense)
    if known is None:
        return "none: unreliable"
    return code(known.attack) + ("" if section.reliable(defense) else ": sees less, unreliable")


def ranking(section: Section, links: Links) -> str:
    """Return the attacks by rank, undefended and over all defenses, with what each was given."""
    attacks, overall, rates = section.attacks(control=False), section.overall, section.rates
    first = _order(section.undefended, overall, attacks)
    searches = any(map(rates.known, attacks))
    rows = [
        [
            _rank(section, section.undefended, attack),
            code(attack),
            _undefended(section, links, attack),
            _rank(section, overall, attack),
            _over_all(section, links, attack),
            reads(section, attack),
            gradients(section, attack),
            *([rates.told(attack, links)] if searches else []),
        ]
        for attack in first
    ]
    headers = ["Rank", "Attack", f"On `{NONE}`", "Rank", "Over all defenses", "Reads"]
    headers += ["Gradients", *(["Rate"] if searches else [])]
    blocks = [
        f"By {section.unit}, {section.frozen.primary.better} is worse for the client. "
        f"{prose(section.threat)}.",
        grid(headers, rows, words=2),
        "Too few: under ten trials. Not ranked: under the gradients of its paper, or at another "
        "rate than the tuned one, which ran.",
        rates.warning(place.attack for place in section.undefended.places),
        *_compared(f"on `{NONE}`", section.undefended),
        *_compared("over all defenses", overall),
    ]
    return "\n\n".join(filter(None, blocks))


def _order(first: Ranking, second: Ranking, attacks: Sequence[str]) -> list[str]:
    placed = [place.attack for ranked in (first, second) for place in ranked.places]
    return list(dict.fromkeys([*placed, *attacks]))


def _rank(section: Section, ranked: Ranking, attack: str) -> str:
    for place in ranked.places:
        if place.attack == attack:
            return str(place.rank)
    if (claim := section.claims.get(attack)) is not None:
        return claim
    if section.reduced(attack) or section.superseded(attack) or attack in section.dirty:
        return "not ranked"
    if attack in ranked.few:
        return f"too few ({ranked.few[attack]})"
    return DASH


def _undefended(section: Section, links: Links, attack: str) -> str:
    score = section.score(NONE, attack)
    return DASH if score is None else links.to(mean(score), section.file(attack))


def _over_all(section: Section, links: Links, attack: str) -> str:
    scores = [place.score for place in section.overall.places if place.attack == attack]
    return links.to(mean(scores[0]), section.file(attack)) if scores else DASH


def reads(section: Section, attack: str) -> str:
    """Return the facts an attack was given, and whether it chose what was sent."""
    given = section.given[attack]
    facts = [fact.replace("_", " ") for fact in given.needs]
    return prose(", ".join([*(["malicious server"] if given.malicious else []), *facts])) or DASH


def gradients(section: Section, attack: str) -> str:
    """Return the gradients that an attack spent on a trial, against those of its paper."""
    spent, full = section.spent(attack), section.in_paper(attack)
    if not spent:
        return DASH if spent is None else "0"
    if full is None:
        return f"{spent:,}"
    share = f"{percent(spent / full)}{NBSP}of{NBSP}{full:,}"
    return share if spent < full else f"{spent:,} of {full:,}"


def _compared(where: str, ranked: Ranking) -> list[str]:
    """Return how the attacks were compared, and who was left out."""
    notes = []
    if len(ranked.places) > 1:
        pairs = len(ranked.places) * (len(ranked.places) - 1) // 2
        left = f"; {ranked.left_out} are left out because a ranked attack lacks them"
        notes.append(
            f"Compared {where} on {ranked.units} trials{left if ranked.left_out else ''}: "
            f"{pairs} pair(s) by sign flips, false discoveries held to 5 % (Benjamini-Hochberg)."
        )
    for attack, names in ranked.absent.items():
        under = ", ".join(map(code, names))
        notes.append(
            f"Not ranked {where}: {code(attack)} has no trial under {under} (it did not run, or is "
            f"n/a where no {code(stats.PRIOR)} control ran)."
        )
    return notes


def matrix(section: Section, links: Links) -> str:
    """Return attacks by defenses, the worst case of each defense in bold; controls beneath."""
    counts = [cell.n for cell in section.summaries if cell.n]
    usual = max(sorted(set(counts)), key=counts.count, default=0)
    blocks = [
        f"Mean ± standard deviation over {usual} trials where no other number is told; a failed "
        "one counts as the prior alone. **Bold** is the worst case of a defense."
    ]
    for control, corner in ((False, "Attack"), (True, "Control")):
        names = section.attacks(control=control)
        blocks += [CONTROLS] if control and names else []
        for start in range(0, len(section.defenses) if names else 0, WIDEST):
            beside = section.defenses[start : start + WIDEST]
            rows = [
                [
                    _named(section, name),
                    *(_shown(section, links, each, name, usual) for each in beside),
                ]
                for name in names
            ]
            blocks.append(grid([corner, *map(stacked, beside)], rows))
    return "\n\n".join(blocks)


def _named(section: Section, attack: str) -> str:
    claim = section.claims.get(attack)
    return code(attack) + (f" ({claim})" if claim else "")


def _shown(section: Section, links: Links, defense: str, attack: str, usual: int) -> str:
    cell = section.cells.get((defense, attack))
    if cell is None:
        return DASH
    score = cell.scores.get(section.primary)
    if score is None:
        return links.to(VERDICTS.get(cell.verdict or "", "unscored"), section.file(attack))
    text = links.to(f"{spread(score)}{_counts(cell, score.n, usual)}", section.file(attack))
    return f"**{text}**" if cell is section.worst.get(defense) else text


def _counts(cell: CellSummary, n: int, usual: int) -> str:
    failed = f",{NBSP}{cell.failed}{NBSP}failed" if cell.failed else ""
    return f"<br>({n}{failed})" if failed or n != usual else ""


def deviations(section: Section) -> str:
    """Return what each attack's code does otherwise than its paper, a line a method."""
    lines: dict[str, str] = {}
    for label in section.attacks(control=False):
        given = section.given[label]
        source = prose(given.paper or given.title or "not registered here")
        told = prose(given.deviations or "no difference told")
        lines[label.split(",")[0]] = f"- {code(label.split(',')[0])}, {source}: {told}."
    return "\n".join(lines.values())


def reasons(section: Section, statuses: Sequence[str]) -> str:
    """Return each reason once, with the cells it is the reason of; empty where there is none."""
    lines = []
    for status in statuses:
        chosen = section.frame[section.frame["status"] == status]
        named = chosen["reason"].astype(object).fillna("no reason given")
        for reason in sorted(set(named)):
            rows = chosen[named == reason]
            word = VERDICTS.get(status, f"{len(rows)} {status.replace('_', ' ')}")
            lines.append(f"- **{word}**: {prose(reason)}: {_cells(section, rows)}.")
    return "\n".join(lines)


def _cells(section: Section, rows: pd.DataFrame) -> str:
    """Return `attacks under defenses`, attacks with the same defenses together."""
    under: dict[str, set[str]] = {}
    for attack, defense in set(zip(rows["attack"], rows["defense"], strict=True)):
        under.setdefault(str(attack), set()).add(str(defense))
    together: dict[tuple[str, ...], list[str]] = {}
    for attack in sorted(under):
        named = tuple(name for name in section.defenses if name in under[attack])
        together.setdefault(named, []).append(attack)
    return "; ".join(
        f"{', '.join(map(code, attacks))} under "
        + ("every defense" if list(named) == section.defenses else ", ".join(map(code, named)))
        for named, attacks in together.items()
    )
