"""Which attacks can be told apart: pairs on the same trials, corrected for how many there are."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import false_discovery_control

from benchmark.seeds import derive_seed
from benchmark.stats import (
    CONFIDENCE,
    LEAST_TRIALS,
    PRIOR,
    TRIAL,
    Estimate,
    Floats,
    estimates,
)

FLIPS = 9999
"""Sign flips a comparison; the smallest p-value is one of ten thousand."""


@dataclass(frozen=True)
class Place:
    """An attack's place: one more than the attacks that are told apart from it as better."""

    attack: str
    rank: int
    score: Estimate


@dataclass(frozen=True)
class Ranking:
    """Attacks compared on the same trials, best first.

    Attributes:
        places: ranked attacks.
        few: attacks of under ten trials, with how many; all of them where fewer are in common.
        absent: attacks that lack every trial of a defense, with those defenses.
        units: (defense, seed, trial) triples compared.
        left_out: such triples that a ranked attack lacks, left out for all.
    """

    places: list[Place]
    few: dict[str, int]
    absent: dict[str, list[str]]
    units: int
    left_out: int


def trials(frame: pd.DataFrame) -> pd.DataFrame:
    """Return one protocol's scores to be ranked: (defense, seed, trial) by attack, no controls.

    Where an attack is not applicable it has the prior-only control's score of that very trial,
    or none without that control. What is unavailable to one attack is left out for all. An attack
    that ran nowhere is left out itself: the prior's score is no merit of its own.

    Args:
        frame: judged, of one protocol.
    """
    text = {name: frame[name].astype(object) for name in ("defense", "attack")}
    frame = frame[["seed", "trial", "status", "control", "primary"]].assign(**text)
    ran = frame[frame["trial"] >= 0]
    contenders = sorted(ran.loc[~ran["control"].astype(bool), "attack"].unique())
    wide = ran.pivot(index=["defense", *TRIAL], columns="attack", values="primary")
    wide = wide.reindex(columns=sorted({*frame["attack"].unique(), PRIOR}))
    place = wide.reset_index("trial").index
    verdicts = frame[frame["attack"].isin(contenders)].set_index(["defense", "seed"])
    declined = verdicts[verdicts["status"] == "not_applicable"]["attack"]
    for attack in sorted(declined.unique()):
        gap = place.isin(declined.index[declined == attack]) & wide[attack].isna()
        wide.loc[gap, attack] = wide.loc[gap, PRIOR]
    missing = verdicts.index[verdicts["status"] == "unavailable"]
    return wide.loc[~place.isin(missing), contenders]


def ranking(scores: pd.DataFrame, *, higher: bool, aside: Collection[str] = ()) -> Ranking:
    """Rank attacks on the trials that all of them have; a trial's score is its mean over defenses.

    Every pair is compared by `compare`, and the p-values are corrected for their number
    (Benjamini and Hochberg): of the pairs told apart, 5 % at most are so by chance.

    Args:
        scores: as `trials` returns.
        higher: whether a higher number is the better attack.
        aside: attacks that are not to be ranked.
    """
    scores = scores.drop(columns=[name for name in aside if name in scores])
    counts = scores.groupby(level="defense").count()
    absent = {str(n): sorted(counts.index[counts[n] == 0]) for n in counts if not counts[n].all()}
    scores = scores.drop(columns=list(absent))
    alone = scores.notna().groupby(level=TRIAL).any().sum()
    few = {str(name): int(n) for name, n in alone.items() if n < LEAST_TRIALS}
    scores = scores.drop(columns=list(few))
    common = scores.dropna() if len(scores.columns) else scores.iloc[:0]
    units = common.groupby(level=TRIAL).mean()
    if len(units) < LEAST_TRIALS:
        return Ranking([], few | dict.fromkeys(map(str, scores.columns), len(units)), absent, 0, 0)
    names, values = [str(name) for name in units.columns], units.to_numpy(float)
    better = _better(values if higher else -values)
    flat = estimates(values.T.ravel(), np.repeat(np.arange(len(names)), len(values)))
    places = [Place(name, 1 + int(better[:, i].sum()), flat[i]) for i, name in enumerate(names)]
    sign = -1 if higher else 1
    places.sort(key=lambda place: (place.rank, sign * place.score.mean, place.attack))
    return Ranking(places, few, absent, len(common), len(scores) - len(common))


def _better(values: Floats) -> NDArray[np.bool_]:
    """Return whether the first attack is told apart from the second as better, (first, second).

    Args:
        values: (trials, attacks), higher is better.
    """
    first, second = np.triu_indices(values.shape[1], 1)
    better = np.zeros((values.shape[1],) * 2, bool)
    if len(first):
        gaps = values[:, first] - values[:, second]
        apart = false_discovery_control(compare(gaps)) <= 1 - CONFIDENCE
        better[first, second] = apart & (gaps.mean(axis=0) > 0)
        better[second, first] = apart & (gaps.mean(axis=0) < 0)
    return better


def compare(differences: Floats) -> Floats:
    """Return p-values of means that are not zero, by flipping signs, as in a paired permutation.

    Args:
        differences: (n, pairs), of two attacks' scores on the same trials.

    Returns:
        (pairs,), two-sided, at least 1 / (flips + 1).
    """
    seen = np.abs(differences.sum(axis=0)) * (1 - 1e-9)  # rounding is no difference
    flipped = _signs(len(differences)) @ differences
    np.abs(flipped, out=flipped)
    share: Floats = (1 + np.count_nonzero(flipped >= seen, axis=0)) / (1 + FLIPS)
    return share


@lru_cache(maxsize=8)
def _signs(n: int) -> Floats:
    """Return (flips, n) of 1 and -1."""
    draws = np.random.default_rng(derive_seed(0, "flips", n))
    return draws.choice(np.array([-1.0, 1.0]), (FLIPS, n))
