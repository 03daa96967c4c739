"""`gradleak compare`: one attack beside another on the same trials, from the records alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control
from tabulate import tabulate

from benchmark.errors import RecordError
from benchmark.leaderboard.frozen import Frozen
from benchmark.leaderboard.ranking import compare as by_sign_flips
from benchmark.records import read_table
from benchmark.stats import CONFIDENCE, LEAST_TRIALS, RAN, TRIAL, Estimate, estimates


@dataclass(frozen=True)
class Difference:
    """How much more one attack sees than another, on the trials that both ran.

    Attributes:
        metric: the protocol's primary one.
        gap: the first's score less the second's, in the metric's unit.
        ahead: whether a gap above zero is the first's advantage.
        chance: p-value of a gap of zero, by sign flips, corrected for the number of differences
            (Benjamini and Hochberg); None for under ten trials.
    """

    protocol: str
    defense: str
    metric: str
    gap: Estimate
    ahead: bool
    chance: float | None

    @property
    def verdict(self) -> str:
        """Say whether it is more than chance, and whose."""
        if self.chance is None:
            return f"under {LEAST_TRIALS} trials"
        if self.chance > 1 - CONFIDENCE or self.gap.mean == 0:
            return "no more than chance"
        return "sees more" if (self.gap.mean > 0) == self.ahead else "sees less"


def differences(
    results: Path, attack: str, against: str, protocols: Sequence[str] = ()
) -> list[Difference]:
    """Return the difference in each protocol and defense that both attacks ran in.

    A trial that failed counts with its score, which is the prior's.

    Args:
        results: folder of records.
        attack: a label, as records name it.
        against: another.
        protocols: names; empty is all.

    Raises:
        RecordError: no such records, or none of the trials is both's.
    """
    if attack == against:
        raise RecordError(f"{attack} against itself: wanted two attacks")
    frame = read_table(results).frame
    known = sorted(frame["attack"].astype(str).unique())
    for name in (attack, against):
        if name not in known:
            raise RecordError(f"{results}: no records of {name}; those of: {', '.join(known)}")
    frame = frame[frame["status"].isin(RAN) & frame["attack"].isin([attack, against])]
    if protocols:
        frame = frame[frame["protocol"].isin(protocols)]
    found: list[tuple[Frozen, str, np.ndarray]] = []
    for (protocol, defense), rows in frame.groupby(["protocol", "defense"], observed=True):
        frozen = Frozen.read(results, str(protocol))
        gaps = _gaps(rows, frozen.primary.name, attack, against)
        if len(gaps):
            found.append((frozen, str(defense), gaps))
    if not found:
        raise RecordError(f"{results}: no trial that both {attack} and {against} ran")
    return _judged(found)


def table(found: Sequence[Difference], attack: str, against: str) -> str:
    """Return the differences for a terminal."""
    rows = [
        (one.protocol, one.defense, one.metric, one.gap.n, *_told(one.gap), one.verdict)
        for one in found
    ]
    head = ("protocol", "defense", "metric", "trials", "difference", "95 % interval", attack)
    return f"{attack} less {against}, on the same trials\n\n" + tabulate(
        rows, head, tablefmt="simple", disable_numparse=True
    )


def _gaps(rows: pd.DataFrame, metric: str, attack: str, against: str) -> np.ndarray:
    """Return the differences of the trials that both have, (trials,)."""
    scores = rows.assign(attack=rows["attack"].astype(str))
    wide = scores.pivot(index=TRIAL, columns="attack", values=metric)
    if not {attack, against} <= set(wide):
        return np.empty(0)
    return (wide[attack] - wide[against]).dropna().to_numpy(float)


def _judged(found: Sequence[tuple[Frozen, str, np.ndarray]]) -> list[Difference]:
    values = np.concatenate([gaps for _, _, gaps in found])
    groups = np.repeat(np.arange(len(found)), [len(gaps) for _, _, gaps in found])
    told = estimates(values, groups)
    enough = [i for i, (_, _, gaps) in enumerate(found) if len(gaps) >= LEAST_TRIALS]
    chances = [float(by_sign_flips(found[i][2][:, None])[0]) for i in enough]
    corrected = false_discovery_control(chances).tolist() if chances else []
    by_place = dict(zip(enough, corrected, strict=True))
    return [
        Difference(
            frozen.name,
            defense,
            frozen.units[frozen.primary.name],
            told[i],
            frozen.primary.better == "higher",
            by_place.get(i),
        )
        for i, (frozen, defense, _) in enumerate(found)
    ]


def _told(gap: Estimate) -> tuple[str, str]:
    interval = "" if gap.low is None else f"[{gap.low:+.3g}, {gap.high:+.3g}]"
    return f"{gap.mean:+.3g}", interval
