"""One table of trials -> means, intervals and worst cases; pure and seeded.

The bootstrap draws trials, that is (seed, trial) pairs; those of one seed share the victim's
weights, so an interval speaks of more batches rather than of more victims. All cells with as many
trials are resampled by the same weights, drawn once: one matrix product serves them all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmark.seeds import derive_seed

PRIOR = "prior_only"
"""The control whose score stands in for an attack that does not apply: it knows the prior only."""
RESAMPLES = 1000
"""By which an end of an interval is known to a fiftieth of its width."""
CONFIDENCE = 0.95
LEAST_TRIALS = 10
"""Of fewer no interval is told, and nothing is ranked or told apart."""
RAN = ("completed", "failed", "timed_out")
CELL = ["protocol", "defense", "attack"]
TRIAL = ["seed", "trial"]
_MARGINS = {"dB": 1.0, "pixel^2": 0.005, "std^2": 0.05}
_SHARE_MARGIN = 0.05
_AT_ONCE = 2048  # means resampled together: 8 MiB

Floats = NDArray[np.float64]


def margin(unit: str) -> float:
    """Return the lead over the prior alone below which an attack has learned nothing to speak of.

    Args:
        unit: of the score; of one without a unit the scale is 0 to 1.
    """
    return _MARGINS.get(unit, _SHARE_MARGIN)


@dataclass(frozen=True)
class Estimate:
    """A mean over trials.

    Attributes:
        mean: in the metric's unit, as are the next three.
        std: sample standard deviation (n - 1); None for one trial.
        low: lower end of the 95 % bootstrap percentile interval; None for under ten trials.
        high: its upper end.
        n: trials.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    n: int


@dataclass(frozen=True)
class CellSummary:
    """One attack under one defense in one protocol.

    Attributes:
        verdict: `not_applicable` or `unavailable` where no trial ran, otherwise None.
        n: trials that ran, with those that failed.
        failed: trials that crashed or timed out; they count with the prior's score.
        seconds: the attack's median seconds a trial; None where none was timed.
        gradients: most gradients of the victim spent on one trial; None where none was counted.
        scores: by metric; a metric that no trial has is absent.
        lead: primary score over the prior's on the same trials, positive where the attack sees
            more, whatever the direction of the metric; None without the prior's trials.
        lowest: the lowest primary score of a trial; None where none has one.
        highest: likewise.
        breached: share of the trials that reach the protocol's threshold; None without one.
    """

    protocol: str
    defense: str
    attack: str
    control: bool
    verdict: str | None
    n: int
    failed: int
    seconds: float | None
    gradients: int | None
    scores: dict[str, Estimate]
    lead: Estimate | None
    lowest: float | None
    highest: float | None
    breached: float | None

    @property
    def below_prior(self) -> bool:
        """Whether the attack tells no more than the prior alone, in the mean over trials."""
        return self.lead is not None and self.lead.mean <= 0


@dataclass(frozen=True)
class Scale:
    """How one protocol is judged.

    Attributes:
        primary: the metric compared.
        higher: whether a higher number is the better attack.
        breach: a metric, whether higher is better in it, and the number from which on a trial is
            breached, itself included.
    """

    primary: str
    higher: bool
    breach: tuple[str, bool, float] | None = None


def tidy(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table sorted by cell and trial, so that the order of files is no matter.

    Of two rows of one trial the later counts. A verdict on a whole cell and seed (trial -1) is
    dropped where that cell and seed did run.
    """
    ordered = {"status": frame["status"].astype("category")}
    for name in CELL:
        column = frame[name].astype("category").cat.remove_unused_categories()
        ordered[name] = column.cat.reorder_categories(sorted(column.cat.categories))
    frame = frame.assign(**ordered).drop_duplicates([*CELL, *TRIAL], keep="last")
    frame = frame.sort_values([*CELL, *TRIAL])
    ran = frame.groupby([*CELL, "seed"], observed=True)["trial"].transform("max") >= 0
    return frame[(frame["trial"] >= 0) | ~ran].reset_index(drop=True)


def judged(frame: pd.DataFrame, scales: Mapping[str, Scale]) -> pd.DataFrame:
    """Return a tidy table with three columns more, each by the scale of the row's protocol.

    `primary` is the score compared; `lead` is how much more it tells than the prior-only control
    of the same trial; `breached` is 1 where the trial reaches the threshold and 0 where not.
    """
    primary, breached = np.full(len(frame), np.nan), np.full(len(frame), np.nan)
    sign = np.ones(len(frame))
    protocols = frame["protocol"].astype("category")
    codes = protocols.cat.codes.to_numpy()
    for code, name in enumerate(protocols.cat.categories):
        rows, scale = codes == code, scales[str(name)]
        primary[rows] = frame[scale.primary].to_numpy()[rows]
        sign[rows] = 1 if scale.higher else -1
        if scale.breach is not None:
            metric, higher, at = scale.breach
            values = frame[metric].to_numpy()[rows]
            reached = values >= at if higher else values <= at
            breached[rows] = np.where(np.isnan(values), np.nan, reached)
    frame = frame.assign(primary=primary, breached=breached)
    place = ["protocol", "defense", *TRIAL]
    prior = frame.loc[frame["attack"] == PRIOR, [*place, "primary"]]
    floor = frame[place].merge(prior, on=place, how="left")["primary"].to_numpy()
    return frame.assign(lead=sign * (primary - floor))


def cells(frame: pd.DataFrame, metrics: Sequence[str]) -> list[CellSummary]:
    """Return every cell of a judged table, by protocol, defense and attack."""
    code = np.asarray(frame.groupby(CELL, observed=True).ngroup(), np.int64)
    ran = frame["status"].isin(RAN).to_numpy()
    named = frame[[*CELL, "control", "status"]].groupby(code).last()
    rows = frame[ran]
    trials = rows.assign(failed=rows["status"] != "completed").groupby(code[ran])
    counted = trials.agg(
        n=("failed", "size"),
        failed=("failed", "sum"),
        seconds=("seconds", "median"),
        gradients=("gradient_evaluations", "max"),
        lowest=("primary", "min"),
        highest=("primary", "max"),
        breached=("breached", "mean"),
    ).reindex(named.index)
    told = {name: _numbers(counted[name]) for name in counted}
    scored = {
        name: estimates(frame[name].to_numpy(float)[ran], code[ran]) for name in [*metrics, "lead"]
    }
    words = named.astype(str).to_dict("list")
    control = named["control"].astype(bool).tolist()
    return [
        CellSummary(
            protocol=words["protocol"][i],
            defense=words["defense"][i],
            attack=words["attack"][i],
            control=control[i],
            verdict=None if told["n"][i] else words["status"][i],
            n=int(told["n"][i] or 0),
            failed=int(told["failed"][i] or 0),
            seconds=told["seconds"][i],
            gradients=None if (spent := told["gradients"][i]) is None else int(spent),
            scores={name: scored[name][i] for name in metrics if i in scored[name]},
            lead=scored["lead"].get(i),
            lowest=told["lowest"][i],
            highest=told["highest"][i],
            breached=told["breached"][i],
        )
        for i in range(len(named))
    ]


def _numbers(column: pd.Series[float]) -> list[float | None]:
    return [None if np.isnan(number) else number for number in column.astype(float).tolist()]


def estimates(values: Floats, groups: NDArray[np.int64]) -> dict[int, Estimate]:
    """Return mean, deviation and interval of each group of numbers; a group of none is absent.

    Args:
        values: (rows,), one a trial; not-a-numbers are left out.
        groups: (rows,) from 0 on, the group of each.
    """
    there = ~np.isnan(values)
    order = np.argsort(groups[there], kind="stable")
    values, groups = values[there][order], groups[there][order]
    present, starts, counts = np.unique(groups, return_index=True, return_counts=True)
    found: dict[int, Estimate] = {}
    for n in np.unique(counts):
        chosen = np.flatnonzero(counts == n)
        for part in np.array_split(chosen, -(-len(chosen) // _AT_ONCE)):
            samples = values[starts[part, None] + np.arange(n)]
            found |= zip(present[part].tolist(), _estimated(samples), strict=True)
    return found


def _estimated(samples: Floats) -> list[Estimate]:
    """Return an estimate for each row of (groups, n) numbers."""
    n = samples.shape[1]
    flat = np.ptp(samples, axis=1) == 0  # rounding would give a width that is not there
    means = np.where(flat, samples[:, 0], samples.mean(axis=1))
    stds = [None] * len(samples) if n == 1 else np.where(flat, 0, _deviation(samples)).tolist()
    ends: list[tuple[float | None, float | None]] = [(None, None)] * len(samples)
    if n >= LEAST_TRIALS:
        off = (samples - means[:, None]).astype(np.float32)  # so little that float32 will do
        drawn = np.sort(off @ _weights(n), axis=1)
        tail = round(RESAMPLES * (1 - CONFIDENCE) / 2)
        drawn = means + drawn[:, [tail, -1 - tail]].T
        ends = list(zip(*np.where(flat, means, drawn).tolist(), strict=True))
    return [
        Estimate(mean, std, low, high, n)
        for mean, std, (low, high) in zip(means.tolist(), stds, ends, strict=True)
    ]


def _deviation(samples: Floats) -> Floats:
    deviation: Floats = samples.std(axis=1, ddof=1)
    return deviation


@lru_cache(maxsize=64)
def _weights(n: int) -> NDArray[np.float32]:
    """Return (n, resamples): the share of each of n trials in each resample."""
    draws = np.random.default_rng(derive_seed(0, "bootstrap", n))
    times = draws.multinomial(n, np.full(n, 1 / n), RESAMPLES)
    return np.ascontiguousarray(times.T / n, np.float32)


def worst_case(found: Iterable[CellSummary], metric: str, *, higher: bool) -> CellSummary | None:
    """Return the cell of the attack that sees most, controls aside; None where none ran.

    Args:
        found: the cells of one defense.
        metric: what is compared, by its mean.
        higher: whether a higher number is the better attack.
    """
    ran = [cell for cell in found if not cell.control and metric in cell.scores]
    sign = 1 if higher else -1
    return max(ran, key=lambda cell: sign * cell.scores[metric].mean, default=None)
