"""What closes a protocol's page: every cell by every metric, and where the numbers come from."""

from __future__ import annotations

import pandas as pd

from benchmark.leaderboard.markdown import DASH, NBSP, Links, code, digits, grid, prose, whole
from benchmark.leaderboard.section import NONE, Section
from benchmark.leaderboard.verified import told
from benchmark.metrics import METRICS, OF_INPUT
from benchmark.published import published_for
from benchmark.stats import CellSummary

CLAIMS = (
    "Self-reported: from outside the repository, and no verified run bears it out. Flagged: reads "
    "more of public trials than of canaries. Neither counts for a rank or a worst case."
)


def all_metrics(section: Section, links: Links) -> str:
    """Return every cell by every metric, and what each metric is."""
    units, breach = section.frozen.units, section.frozen.breach
    there = [name for name in units if any(name in cell.scores for cell in section.summaries)]
    attacks = [*section.attacks(control=False), *section.attacks(control=True)]
    rows = []
    for defense in section.defenses:
        for attack in attacks:
            cell = section.cells.get((defense, attack))
            if cell is None or cell.verdict is not None:
                continue
            texts = [str(cell.n), str(cell.failed), _seconds(cell.seconds)]
            texts += [_score(cell, metric) + _paper(section, cell, metric) for metric in there]
            texts += _trials(section, cell)
            file = section.file(attack)
            rows.append([code(defense), code(attack), *(links.to(text, file) for text in texts)])
    headers = ["Defense", "Attack", "n", "failed", "s/trial", *(units[m] for m in there)]
    headers += [f"best {section.primary}", f"worst {section.primary}"]
    if breach is not None:
        metric, at = breach
        headers.append(
            f"breached ({metric.name} {'≥' if metric.better == 'higher' else '≤'} {at:g})"
        )
    blocks = [
        "Mean ± standard deviation, and a 95 % bootstrap interval of the mean over ten trials or "
        "more; beneath it, what a paper prints of the same.",
        grid(headers, rows, words=2),
        "\n".join(_told(name) for name in there),
    ]
    blocks += _two_truths(section, links, there)
    if missing := [code(metric) for metric in units if metric not in there]:
        blocks.append(f"No trial has {', '.join(missing)}: unavailable where these ran.")
    return "\n\n".join(blocks)


def _two_truths(section: Section, links: Links, metrics: list[str]) -> list[str]:
    """Return scores against what clients put in, where a defense made that another image."""
    put = [f"{metric}{OF_INPUT}" for metric in metrics]
    rows = []
    for (defense, attack), cell in sorted(section.cells.items()):
        if not any(metric in cell.scores for metric in put):
            continue
        file = section.file(attack)
        texts = [_score(cell, metric) for metric in put]
        rows.append([code(defense), code(attack), *(links.to(text, file) for text in texts)])
    if not rows:
        return []
    said = (
        "These defenses change what the client puts in. All above is against the original, this "
        "against what the update was computed on:"
    )
    return [said, grid(["Defense", "Attack", *(section.frozen.units[m] for m in metrics)], rows)]


def _told(name: str) -> str:
    metric = METRICS[name]
    note = f" {metric.note}" if metric.note else ""
    return f"- {code(name)}, {metric.better} is worse for the client: {metric.description}.{note}"


def _score(cell: CellSummary, metric: str) -> str:
    score = cell.scores.get(metric)
    if score is None:
        return DASH
    fewer = f" n={score.n}" if score.n < cell.n else ""
    return f"{whole(score)}{fewer}"


def _paper(section: Section, cell: CellSummary, metric: str) -> str:
    """Return what a paper prints of a cell, beneath ours and in our unit; nothing where none does.

    A setting that differs from the paper's is told in reproduction.md.
    """
    found = published_for(section.name, cell.attack, cell.defense, metric)
    if found is None:
        return ""
    scale, std = found.column.scale, found.value.std
    spread = "" if std is None else f"{NBSP}±{NBSP}{std / scale:.3g}"
    return f"<br>{found.paper.name}: {found.value.mean / scale:.3g}{spread}"


def _trials(section: Section, cell: CellSummary) -> list[str]:
    """Return the best and the worst trial for the attacker, and the share of those breached."""
    score, ends = cell.scores.get(section.primary), [cell.lowest, cell.highest]
    if section.higher:
        ends.reverse()
    texts = [DASH if score is None or end is None else digits(score)(end) for end in ends]
    if section.frozen.breach is not None:
        texts.append(DASH if cell.breached is None else f"{cell.breached:.0%}")
    return texts


def _seconds(seconds: float | None) -> str:
    return DASH if seconds is None else f"{seconds:.3g}"


def claims(section: Section) -> str:
    """Return what verified runs were held against, and what no such run bears out."""
    blocks = []
    if section.claims:
        blocks.append(CLAIMS)
    if section.held:
        rows = [
            [
                code(one.attack),
                code(one.defense),
                told(one.public),
                told(one.canaries),
                code(one.key),
                one.word,
            ]
            for one in section.held
        ]
        heads = ["Verified run of", "Defense", "More than the prior alone", "On canaries"]
        blocks.append(grid([*heads, "Key", ""], rows, words=2))
    return "\n\n".join(blocks)


def provenance(section: Section) -> str:
    """Return where the records come from, and the command that makes one cell of them again."""
    columns = ["commit", "dirty", "hardware", "threads", "versions"]
    sources = section.frame[columns].drop_duplicates().astype(object)
    commits = {
        f"{code(str(commit)[:12])}{' (dirty)' if dirty is True else ''}"
        if commit and not pd.isna(commit)
        else "outside a repository"
        for commit, dirty in zip(sources["commit"], sources["dirty"], strict=True)
    }
    return "\n\n".join(
        [
            f"Commits: {', '.join(sorted(commits))}. "
            f"Hardware: {'; '.join(sorted({prose(one) for one in sources['hardware']}))}. "
            f"Versions: {'; '.join(sorted({prose(one) for one in sources['versions']}))}. "
            f"Protocol digest: {code(section.frozen.digest)}.",
            "Run a cell again; where its records lie it is done, elsewhere with `--results DIR`. "
            "The last digits are those of the same number of threads (`OMP_NUM_THREADS`):",
            f"```\n{_command(section)}\n```",
        ]
    )


def _command(section: Section) -> str:
    """Return what makes the trials of one cell, and of no other variant on this page."""
    seeds = sorted({int(seed) for seed in section.frame["seed"].unique()})
    best = section.worst.get(NONE) or section.summaries[0]
    attack = _alone(best.attack, {cell.attack for cell in section.summaries})
    defense = _alone(best.defense, set(section.defenses))
    words = ["gradleak run", section.name, "--attack", attack, "--defense", defense]
    if best.n and best.n < len(seeds) * section.frozen.content.get("trials", 0):
        words += ["--trials", str(-(-best.n // len(seeds)))]
    return " ".join([*words, "--seeds", ",".join(map(str, seeds))])


def _alone(label: str, labels: set[str]) -> str:
    """Return a label that selects no variant beside it, as `--attack` reads it."""
    return f"{label},defaults" if any(one.startswith(f"{label},") for one in labels) else label
