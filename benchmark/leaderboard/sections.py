"""The pieces of a protocol's section, each a function from its part to Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from benchmark import stats
from benchmark.leaderboard.markdown import (
    DASH,
    anchor,
    code,
    grid,
    mean,
    prose,
    spread,
    stacked,
)
from benchmark.leaderboard.part import NONE, VERDICTS, Part
from benchmark.stats import Place, Ranking


def contents(parts: Sequence[Part]) -> str:
    """Return a table a track: what the strongest attack reads where nothing defends."""
    tracks: dict[str, list[Part]] = {}
    for part in parts:
        tracks.setdefault(part.track, []).append(part)
    headers = ["Protocol", "Metric", "Strongest attack, undefended", "It reaches", "Prior alone"]
    return "\n\n".join(
        f"### {prose(track.capitalize())}\n\n{grid(headers, list(map(_entry, mine)), words=3)}"
        for track, mine in tracks.items()
    )


def _entry(part: Part) -> list[str]:
    entry = [
        f"[{prose(part.frozen.title)}](#{anchor(part.frozen.heading)})<br>{code(part.frozen.name)}",
        code(part.unit),
    ]
    cell, prior = part.worst.get(NONE), part.cells.get((NONE, stats.PRIOR))
    if cell is None:
        return [*entry, DASH, DASH, DASH]
    reached = part.link(spread(cell.scores[part.primary]), NONE, cell.attack)
    least = prior.scores.get(part.primary) if prior else None
    alone = DASH if least is None else part.link(spread(least), NONE, stats.PRIOR)
    return [*entry, stacked(cell.attack), reached, alone]


def about(part: Part) -> str:
    """Return what the protocol is: its description and its setting, in words."""
    described = part.frozen.content.get("description")
    whole = part.links.to("All of it", part.folder / "protocol.json")
    setting = f"Setting: {part.frozen.setting()} {whole}."
    return f"{prose(described)}\n\n{setting}" if described else setting


def matrix(part: Part) -> str:
    """Return defenses by attacks, with each defense's worst case; controls in a table beneath."""
    attacks = [name for name in part.attacks(control=False) if part.fits(name)]
    controls = [name for name in part.attacks(control=True) if part.fits(name)]
    blocks = [f"### Attacks: {part.unit}, {part.frozen.primary.better} is worse for the client"]
    if attacks:
        rows = [
            [stacked(name), _worst(part, name), *(part.shown(name, attack) for attack in attacks)]
            for name in part.defenses
        ]
        blocks.append(grid(["Defense", "Worst case", *map(stacked, attacks)], rows, words=2))
    if controls:
        rows = [
            [stacked(name), *(part.shown(name, control) for control in controls)]
            for name in part.defenses
        ]
        blocks += [
            "**Controls** are yardsticks, not attacks: no ranking or worst case counts them.",
            grid(["Defense", *map(stacked, controls)], rows),
        ]
    return "\n\n".join(blocks)


def _worst(part: Part, defense: str) -> str:
    cell = part.worst.get(defense)
    if cell is None:
        return DASH
    text = part.link(mean(cell.scores[part.primary]), defense, cell.attack)
    return f"{text}<br>{stacked(cell.attack)}"


def rankings(part: Part) -> str:
    """Return the ranking of the attacks within each threat model."""
    frame = part.frame
    threats = sorted(set(frame.loc[~frame["control"], "threat"]))
    return "\n\n".join(_ranking(part, threat) for threat in threats)


def _ranking(part: Part, threat: str) -> str:
    frame = part.frame[part.frame["control"] | (part.frame["threat"] == threat)]
    name, primary, higher = part.frozen.name, part.primary, part.higher
    alone = stats.trials(frame[frame["defense"] == NONE], primary)
    overall = stats.ranking(stats.trials(frame, primary), name, primary, higher=higher)
    undefended = stats.ranking(alone, name, primary, higher=higher)
    places = {place.attack: place for place in overall.places}
    first = {place.attack: place for place in undefended.places}
    attacks = sorted(set(frame.loc[~frame["control"], "attack"]))
    rows = [
        [
            code(attack),
            *_placed(part, places.get(attack), alone=False),
            *_placed(part, first.get(attack), alone=True),
            _verdicts(part, attack),
        ]
        for attack in dict.fromkeys([*places, *first, *attacks])
        if part.fits(attack)
    ]
    headers = [
        "Attack",
        "Rank, all",
        "Over all defenses",
        "Rank, `none`",
        "On `none`",
        "Did not run",
    ]
    notes = [*_notes("over all defenses", overall), *_notes("on `none`", undefended)]
    return "\n\n".join(
        [f"### Ranking: {prose(threat)}", f"By {part.unit}.", grid(headers, rows), *notes]
    )


def _placed(part: Part, place: Place | None, *, alone: bool) -> list[str]:
    """Return rank and score; the score over all defenses links to the protocol's folder."""
    if place is None:
        return [DASH, DASH]
    text = mean(place.score)
    if alone:
        return [str(place.rank), part.link(text, NONE, place.attack)]
    return [str(place.rank), part.links.to(text, part.folder)]


def _verdicts(part: Part, attack: str) -> str:
    """Return under how many defenses an attack did not run."""
    given = [cell.verdict for cell in part.cells.values() if cell.attack == attack]
    counts = {word: given.count(verdict) for verdict, word in VERDICTS.items()}
    return ", ".join(f"{word} under {count}" for word, count in counts.items() if count)


def _notes(where: str, ranking: Ranking) -> list[str]:
    notes = []
    if ranking.left_out:
        notes.append(
            f"Compared {where} on {ranking.units} trials; {ranking.left_out} are left out because "
            "a ranked attack lacks them."
        )
    for attack, defenses in ranking.absent.items():
        under = ", ".join(map(code, defenses))
        notes.append(
            f"Not ranked {where}: {code(attack)} has no trial under {under} (it did not run, or is "
            f"n/a where no {code(stats.PRIOR)} control ran)."
        )
    return notes


def reasons(part: Part, statuses: Sequence[str]) -> str:
    """Return each reason once, with the cells it is the reason of; empty where there is none."""
    lines = []
    for status in statuses:
        chosen = part.frame[part.frame["status"] == status]
        named = chosen["reason"].fillna("no reason given")
        for reason in sorted(set(named)):
            rows = chosen[named == reason]
            word = VERDICTS.get(status, f"{len(rows)} {status.replace('_', ' ')}")
            lines.append(f"- **{word}**: {prose(reason)}: {_cells(part, rows)}.")
    return "\n".join(lines)


def _cells(part: Part, rows: pd.DataFrame) -> str:
    """Return `attacks under defenses`, attacks with the same defenses together."""
    together: dict[tuple[str, ...], list[str]] = {}
    for attack in sorted(set(rows["attack"])):
        under = set(rows.loc[rows["attack"] == attack, "defense"])
        together.setdefault(tuple(d for d in part.defenses if d in under), []).append(attack)
    return "; ".join(
        f"{', '.join(map(code, attacks))} under "
        + ("every defense" if list(under) == part.defenses else ", ".join(map(code, under)))
        for under, attacks in together.items()
    )
