"""A protocol's page: every cell by every metric, and where the numbers come from."""

from __future__ import annotations

from benchmark import stats
from benchmark.errors import RecordError
from benchmark.leaderboard import sections
from benchmark.leaderboard.markdown import DASH, code, digits, grid, interval, prose, spread
from benchmark.leaderboard.part import NONE, Part
from benchmark.metrics import METRICS, Metric
from benchmark.stats import Cell


def details(part: Part) -> str:
    """Return the page, for the protocol's folder of records."""
    blocks = [
        f"# {prose(part.frozen.heading)}",
        sections.about(part),
        "## All metrics: mean ± std and 95 % interval",
        _full(part),
        "## Provenance",
        _provenance(part),
        part.links.definitions(),
    ]
    return "\n\n".join(blocks) + "\n"


def _full(part: Part) -> str:
    """Return every cell by every metric, and why trials failed."""
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
    if why := sections.reasons(part, ["failed", "timed_out"]):
        blocks += ["Failed and timed-out trials count with the prior-only score:", why]
    if missing := [code(metric) for metric in units if metric not in there]:
        blocks.append(f"No trial has {', '.join(missing)}: unavailable where these ran.")
    return "\n\n".join(blocks)


def _breach(part: Part) -> tuple[Metric, float] | None:
    """Return the metric, and the number from which on a trial is breached, if the protocol does."""
    match part.frozen.content.get("breach"):
        case None:
            return None
        case {"metric": str(name), "at": int() | float() as at} if name in part.frozen.metrics:
            return METRICS[name], at
        case stated:
            path = part.folder / "protocol.json"
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


def _provenance(part: Part) -> str:
    """Return where the records come from, and the command that makes one cell of them again."""
    sources = [record.provenance for record in part.records]
    commits = {
        f"{code(one.commit[:12])}{' (dirty)' if one.dirty else ''}"
        if one.commit
        else "outside a repository"
        for one in sources
    }
    versions = {f"{name} {is_}" for one in sources for name, is_ in one.versions.items()}
    return "\n\n".join(
        [
            f"Commits: {', '.join(sorted(commits))}. "
            f"Hardware: {'; '.join(sorted({prose(one.hardware) for one in sources}))}. "
            f"Versions: {', '.join(map(prose, sorted(versions)))}. "
            f"Protocol digest: {code(part.frozen.digest)}.",
            "Run a cell again; where its records lie it is done, elsewhere with `--results DIR`. "
            "The last digits are those of the same number of threads (`OMP_NUM_THREADS`):",
            f"```\n{_command(part)}\n```",
        ]
    )


def _command(part: Part) -> str:
    """Return what makes the trials of one cell, and of no other variant on this page."""
    seeds = sorted({record.seed for record in part.records})
    best = part.worst.get(NONE) or next(iter(part.cells.values()))
    attack = _alone(best.attack, {cell.attack for cell in part.cells.values()})
    defense = _alone(best.defense, set(part.defenses))
    words = ["gradleak run", part.frozen.name, "--attack", attack, "--defense", defense]
    if best.n and best.n < len(seeds) * part.frozen.content.get("trials", 0):
        words += ["--trials", str(-(-best.n // len(seeds)))]
    return " ".join([*words, "--seeds", ",".join(map(str, seeds))])


def _alone(label: str, labels: set[str]) -> str:
    """Return a label that selects no variant beside it, as `--attack` reads it."""
    return f"{label},defaults" if any(one.startswith(f"{label},") for one in labels) else label
