"""Records -> means, intervals, worst cases and tie groups; pure, and seeded by names.

The bootstrap draws trials, that is (seed, trial) pairs; those of one seed share the victim's
weights, so an interval speaks of more batches rather than of more victims.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from benchmark.records import Record
from benchmark.seeds import derive_seed

PRIOR = "prior_only"
"""The control whose score stands in for an attack that does not apply: it knows the prior only."""
RESAMPLES = 2000
CONFIDENCE = 0.95
RAN = ("completed", "failed", "timed_out")
UNIT = ["seed", "trial"]


@dataclass(frozen=True)
class Estimate:
    """A mean over trials.

    Attributes:
        mean: in the metric's unit, as are the next three.
        std: sample standard deviation (n - 1); None for one trial.
        low: lower end of the 95 % bootstrap percentile interval; None for one trial.
        high: its upper end.
        n: trials.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class Cell:
    """One attack under one defense.

    Attributes:
        threat: the threat model's words.
        verdict: `not_applicable` or `unavailable` where no trial ran, otherwise None.
        n: trials that ran, with those that failed.
        failed: trials that crashed or timed out; they count with the prior's score.
        seconds: the attack's median seconds a trial; None where none was timed.
        scores: by metric; a metric that no trial has is absent.
    """

    defense: str
    attack: str
    control: bool
    threat: str
    verdict: str | None
    n: int
    failed: int
    seconds: float | None
    scores: dict[str, Estimate]


@dataclass(frozen=True)
class Place:
    """An attack's place: equal ranks are ties, and the next rank leaves room for them (1, 1, 3)."""

    attack: str
    rank: int
    score: Estimate


@dataclass(frozen=True)
class Ranking:
    """Attacks compared on the same trials, best first.

    Attributes:
        places: ranked attacks.
        absent: attacks that lack every trial of a defense, with those defenses.
        units: (defense, seed, trial) triples compared.
        left_out: such triples that a ranked attack lacks, left out for all.
    """

    places: list[Place]
    absent: dict[str, list[str]]
    units: int
    left_out: int


def table(records: Iterable[Record], metrics: Sequence[str]) -> pd.DataFrame:
    """Return one row a record and one column a metric, sorted, so that file order is no matter.

    Of two records of one trial the later counts. `trial` is -1 for a verdict on a whole cell and
    seed; such a verdict is dropped where that cell and seed did run.
    """
    described = ["defense", "attack", "control", "threat", "seed", "status", "reason", "seconds"]
    rows = [
        [getattr(record, name) for name in described]
        + [-1 if record.trial is None else record.trial]
        + [record.metrics.get(metric) for metric in metrics]
        for record in records
    ]
    frame = pd.DataFrame(rows, columns=[*described, "trial", *metrics])
    frame = frame.astype({name: float for name in ("seconds", *metrics)})
    cell = ["defense", "attack", "seed"]
    frame = frame.drop_duplicates([*cell, "trial"], keep="last").sort_values([*cell, "trial"])
    ran = frame.groupby(cell)["trial"].transform("max") >= 0
    return frame[(frame["trial"] >= 0) | ~ran].reset_index(drop=True)


def estimate(values: Iterable[float], *names: str | int) -> Estimate:
    """Return mean, standard deviation and interval of at least one number.

    Args:
        values: one a trial.
        names: what the numbers are of; they seed the bootstrap.
    """
    sample = np.asarray(list(values), dtype=float)
    mean, n = float(sample.mean()), len(sample)
    if n == 1:
        return Estimate(mean, None, None, None, n)
    if np.ptp(sample) == 0:  # rounding would give a width that is not there
        mean = float(sample[0])
        return Estimate(mean, 0.0, mean, mean, n)
    interval = stats.bootstrap(
        (sample,),
        np.mean,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(derive_seed(0, "bootstrap", *names)),
    ).confidence_interval
    std = float(sample.std(ddof=1))
    return Estimate(mean, std, float(interval.low), float(interval.high), n)


def difference(first: pd.Series[float], second: pd.Series[float], *names: str | int) -> Estimate:
    """Return the mean of first - second over the trials that both have, bootstrapped in pairs."""
    return estimate((first - second).dropna(), *names)


def cells(frame: pd.DataFrame, metrics: Sequence[str], protocol: str) -> list[Cell]:
    """Return every cell of a table, by defense and attack."""
    found = []
    for (defense, attack), rows in frame.groupby(["defense", "attack"]):
        ran = rows[rows["status"].isin(RAN)]
        seconds = ran["seconds"].dropna()
        found.append(
            Cell(
                defense=str(defense),
                attack=str(attack),
                control=bool(rows["control"].any()),
                threat=str(rows["threat"].iloc[-1]),
                verdict=None if len(ran) else str(rows["status"].iloc[-1]),
                n=len(ran),
                failed=int((ran["status"] != "completed").sum()),
                seconds=float(seconds.median()) if len(seconds) else None,
                scores={
                    metric: estimate(values, protocol, metric, str(attack))
                    for metric in metrics
                    if len(values := ran[metric].dropna())
                },
            )
        )
    return found


def breached(values: Iterable[float], at: float, *, higher: bool) -> float | None:
    """Return the share of trials that reach a threshold, itself included; None without trials.

    Args:
        values: one a trial.
        at: in their unit.
        higher: whether a higher number is the better attack.
    """
    sample = np.asarray(list(values), dtype=float)
    return float(np.mean(sample >= at if higher else sample <= at)) if len(sample) else None


def worst_case(found: Iterable[Cell], metric: str, *, higher: bool) -> Cell | None:
    """Return the cell of the attack that sees most, controls aside; None where none ran.

    Args:
        found: the cells of one defense.
        metric: what is compared, by its mean.
        higher: whether a higher number is the better attack.
    """
    ran = [cell for cell in found if not cell.control and metric in cell.scores]
    sign = 1 if higher else -1
    return max(ran, key=lambda cell: sign * cell.scores[metric].mean, default=None)


def trials(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the scores to be ranked: (defense, seed, trial) by attack, controls aside.

    Where an attack is not applicable it has the prior-only control's score of that very trial,
    or none without that control. What is unavailable to one attack is left out for all. An attack
    that ran nowhere is left out itself: the prior's score is no merit of its own.
    """
    contenders = sorted(set(frame.loc[~frame["control"] & (frame["trial"] >= 0), "attack"]))

    wide = frame[frame["trial"] >= 0].pivot(
        index=["defense", *UNIT], columns="attack", values=metric
    )
    wide = wide.reindex(columns=sorted({*frame["attack"], PRIOR}))
    place = pd.Series([unit[:2] for unit in wide.index], index=wide.index)
    verdicts = frame[frame["attack"].isin(contenders)].set_index(["defense", "seed"])
    declined = verdicts[verdicts["status"] == "not_applicable"]["attack"]
    for attack in sorted(set(declined)):
        cases = declined.index[declined == attack]
        gap = place.isin(list(cases)) & wide[attack].isna()
        wide.loc[gap, attack] = wide.loc[gap, PRIOR]
    missing = verdicts.index[verdicts["status"] == "unavailable"]
    return wide.loc[~place.isin(list(missing)), contenders]


def ranking(scores: pd.DataFrame, *names: str | int, higher: bool) -> Ranking:
    """Rank attacks on the trials that all of them have; a trial's score is its mean over defenses.

    An attack ties with the leader of its group where the interval of their paired difference
    holds zero, or where a single trial gives no interval; otherwise it leads the next group.

    Args:
        scores: as `trials` returns.
        names: protocol and metric; they and the attack seed the bootstrap, as in `cells`, so that
            the same trials have the same interval in both.
        higher: whether a higher number is the better attack.
    """
    counts = scores.groupby(level="defense").count()
    lacking = {str(name): sorted(counts.index[counts[name] == 0]) for name in scores.columns}
    common = scores[[name for name, defenses in lacking.items() if not defenses]].dropna()
    units = common.groupby(level=UNIT).mean()
    means = units.mean() * (-1 if higher else 1)
    order = sorted(units.columns, key=lambda name: (means[name], name)) if len(units) else []
    places: list[Place] = []
    leader, rank = "", 0
    for position, attack in enumerate(order, start=1):
        if not places or not _tied(units[leader], units[attack], *names, leader, attack):
            leader, rank = attack, position
        places.append(Place(attack, rank, estimate(units[attack], *names, attack)))
    absent = {name: defenses for name, defenses in lacking.items() if defenses}
    return Ranking(places, absent, len(common), len(scores) - len(common))


def _tied(first: pd.Series[float], second: pd.Series[float], *names: str | int) -> bool:
    gap = difference(first, second, *names)
    return gap.low is None or gap.high is None or gap.low <= 0 <= gap.high
