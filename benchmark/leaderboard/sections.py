"""The pieces of a protocol's section, each a function from its part to Markdown."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from benchmark import stats
from benchmark.errors import RecordError
from benchmark.leaderboard.markdown import (
    DASH,
    code,
    digits,
    fold,
    grid,
    interval,
    mean,
    prose,
    spread,
    stacked,
)
from benchmark.leaderboard.part import NONE, VERDICTS, Part
from benchmark.metrics import METRICS, Metric
from benchmark.stats import Cell, Place, Ranking


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
    return [str(place.rank), part.links.to(text, part.results / part.frozen.name)]


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


def full(part: Part) -> str:
    """Return every cell by every metric, and why trials failed, folded away."""
    units = {name: part.frozen.units[name] for name in part.frozen.metrics}
    there = [m for m in units if any(m in cell.scores for cell in part.cells.values())]
    rows = []
    for defense in part.defenses:
        for attack in [*part.attacks(control=False), *part.attacks(control=True)]:
            cell = part.cells.get((defense, attack))
            if cell is None or cell.verdict is not None:
                continue
            texts = [str(cell.n), str(cell.failed), _seconds(cell.seconds)]
            for metric in there:
                score = cell.scores.get(metric)
                fewer = f" n={score.n}" if score and score.n < cell.n else ""
                texts.append(f"{spread(score)}<br>{interval(score)}{fewer}" if score else DASH)
            texts += _trials(part, cell)
            linked = [part.link(text, defense, attack) for text in texts]
            rows.append([code(defense), code(attack), *linked])
    headers = ["Defense", "Attack", "n", "failed", "s/trial", *(units[m] for m in there)]
    headers += [f"best {part.primary}", f"worst {part.primary}"]
    if breach := _breach(part):
        sign = "≥" if breach[0].better == "higher" else "≤"
        headers.append(f"breached ({breach[0].name} {sign} {breach[1]:g})")
    blocks = [grid(headers, rows, words=2)]
    if why := reasons(part, ["failed", "timed_out"]):
        blocks += ["Failed and timed-out trials count with the prior-only score:", why]
    folded = fold("All metrics: mean ± std [95 % interval]", "\n\n".join(blocks))
    if missing := [code(metric) for metric in units if metric not in there]:
        return f"No trial has {', '.join(missing)}: unavailable where these ran.\n\n{folded}"
    return folded


def _breach(part: Part) -> tuple[Metric, float] | None:
    """Return the metric, and the number from which on a trial is breached, if the protocol does."""
    match part.frozen.content.get("breach"):
        case None:
            return None
        case {"metric": str(name), "at": int() | float() as at} if name in part.frozen.metrics:
            return METRICS[name], at
        case stated:
            path = part.results / part.frozen.name / "protocol.json"
            raise RecordError(f"{path}: breach is {stated}; wanted one of its metrics and at")


def _trials(part: Part, cell: Cell) -> list[str]:
    """Return the best and the worst trial for the attacker, and the share of those breached."""
    frame, score = part.frame, cell.scores.get(part.primary)
    ran = frame[(frame["defense"] == cell.defense) & (frame["attack"] == cell.attack)]
    ends = sorted([ran[part.primary].min(), ran[part.primary].max()], reverse=part.higher)
    texts = [DASH if score is None else digits(score)(end) for end in ends]
    if breach := _breach(part):
        metric, at = breach
        share = stats.breached(ran[metric.name].dropna(), at, higher=metric.better == "higher")
        texts.append(DASH if share is None else f"{share:.0%}")
    return texts


def _seconds(seconds: float | None) -> str:
    return DASH if seconds is None else f"{seconds:.3g}"


def provenance(part: Part) -> str:
    """Return where the records come from, and the command that makes one cell of them again."""
    sources = [record.provenance for record in part.records]
    commits = {
        f"{code(one.commit[:12])}{' (dirty)' if one.dirty else ''}"
        if one.commit
        else "outside a repository"
        for one in sources
    }
    versions = {f"{name} {is_}" for one in sources for name, is_ in one.versions.items()}
    seeds = sorted({record.seed for record in part.records})
    best = part.worst.get(NONE) or next(iter(part.cells.values()))
    return "\n\n".join(
        [
            f"Commits: {', '.join(sorted(commits))}. "
            f"Hardware: {'; '.join(sorted({prose(one.hardware) for one in sources}))}. "
            f"Versions: {', '.join(map(prose, sorted(versions)))}. "
            f"Protocol digest: {code(part.frozen.digest)}.",
            "Run a cell again:",
            f"```\ngradleak run {part.frozen.name} --attack {best.attack} "
            f"--defense {best.defense} --seeds {','.join(map(str, seeds))}\n```",
        ]
    )
