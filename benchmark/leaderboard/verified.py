"""Public scores held against those on canaries, of which no attack can have carried a copy.

Both are told as the lead over the prior alone on the same trials, so that an attack is not blamed
for images that are harder, or easier, for everyone. Scores in dB count up to 60: what is nearer
than 8 bits can tell is the same picture, and rounding decides the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tabulate import tabulate

from benchmark import stats
from benchmark.errors import RecordError
from benchmark.leaderboard.frozen import Frozen
from benchmark.records import read_table
from benchmark.stats import CELL, LEAST_TRIALS, PRIOR, RAN, Estimate, estimates

FLAGGED = 3
"""Exit code where an attack reads more of public trials than of canaries."""
ENOUGH_DB = 60.0
ALLOWED = 5
"""Times the lead that counts as a leak: what honest attacks lose by other victims and images."""
_VERSIONS, _FINGERPRINT = ["attack_version", "defense_version"], "attack_fingerprint"

Place = tuple[str, str, str]
"""Protocol, defense and attack."""


@dataclass(frozen=True)
class Held:
    """A cell's public lead over the prior alone, held against its lead on canaries.

    Attributes:
        unit: the protocol's primary metric, and its unit.
        key: the digest of the key that the canaries hang on.
        public: the lead on public trials.
        canaries: the lead on canaries.
        margin: what the two may differ by beyond their intervals.
        moved: whether the attack's source was another for some of the public trials.
    """

    protocol: str
    defense: str
    attack: str
    unit: str
    key: str
    public: Estimate
    canaries: Estimate
    margin: float
    moved: bool

    @property
    def place(self) -> Place:
        """What names the cell."""
        return self.protocol, self.defense, self.attack

    @property
    def judged(self) -> bool:
        """Whether there are trials enough of both."""
        return min(self.public.n, self.canaries.n) >= LEAST_TRIALS

    @property
    def flagged(self) -> bool:
        """Whether the public lead exceeds the one on canaries, beyond both intervals."""
        low, high = self.public.low, self.canaries.high
        return low is not None and high is not None and low > high + self.margin

    @property
    def word(self) -> str:
        """What the board says of it."""
        if not self.judged:
            return f"under {LEAST_TRIALS} trials"
        return "flagged" if self.flagged else "verified"


@dataclass(frozen=True)
class _Lead:
    """A cell's lead; the versions that made it, and the attack's fingerprints."""

    lead: Estimate
    versions: frozenset[tuple[str, ...]]
    fingerprints: frozenset[str]


def folders(verified: Path) -> list[Path]:
    """Return the folders of verified runs, one a key; none where there is no such folder."""
    return sorted(path for path in verified.glob("*") if path.is_dir())


def judge(results: Path, runs: Iterable[Path]) -> list[Held]:
    """Hold the records of a folder against verified runs.

    Raises:
        RecordError: there are no records, or a frozen protocol is malformed.
    """
    frame = read_table(results).frame if results.is_dir() else pd.DataFrame()
    if frame.empty:
        raise RecordError(
            f"{results}: no public records to hold against; make some by gradleak run"
        )
    names = sorted(map(str, frame["protocol"].unique()))
    return held(frame, {name: Frozen.read(results, name) for name in names}, runs)


def held(frame: pd.DataFrame, frozen: Mapping[str, Frozen], runs: Iterable[Path]) -> list[Held]:
    """Hold public records against those of verified runs, by cell and key.

    A cell counts where both are of one protocol and of the same versions, and where the prior alone
    ran beside both.

    Args:
        frame: the table of the public records.
        frozen: their protocols, by name.
        runs: folders of verified runs.

    Raises:
        RecordError: a frozen protocol of a run is malformed.
    """
    found: list[Held] = []
    public: dict[Place, _Lead] = {}
    for run in runs:
        canaries = read_table(run).frame
        canaries = canaries[canaries["key"].astype(object).notna()]
        own = {name: Frozen.read(run, name) for name in sorted(set(map(str, canaries["protocol"])))}
        same = {
            name: each
            for name, each in own.items()
            if name in frozen and each.content.get("canaries_of") == frozen[name].digest
        }
        public = public or _leads(frame, frozen)
        for place, lead in _leads(canaries, same).items():
            beside, of = public.get(place), frozen[place[0]]
            if beside is None or beside.versions != lead.versions or place[2] == PRIOR:
                continue
            moved = beside.fingerprints != lead.fingerprints
            margin = ALLOWED * stats.margin(of.primary.unit)
            unit = of.units[of.primary.name]
            found.append(Held(*place, unit, run.name, beside.lead, lead.lead, margin, moved))
    return sorted(found, key=lambda one: (*one.place, one.key))


def table(found: Sequence[Held]) -> str:
    """Return what came of a verified run, for a terminal."""
    if not found:
        return "nothing to hold it against: no public record is of the same cells and versions"
    rows = [(*one.place, one.unit, told(one.public), told(one.canaries), one.word) for one in found]
    heads = ["protocol", "defense", "attack", "lead in", "public", "on canaries", ""]
    return "lead over the prior alone\n\n" + tabulate(rows, heads, disable_numparse=True)


def told(lead: Estimate) -> str:
    """Return a lead and its interval."""
    interval = "" if lead.low is None else f" [{lead.low:.3g}, {lead.high:.3g}]"
    return f"{lead.mean:.3g}{interval}"


def _leads(frame: pd.DataFrame, frozen: Mapping[str, Frozen]) -> dict[Place, _Lead]:
    """Return each cell's lead over the prior alone, of records of the protocols as they are."""
    digests = frame["protocol"].astype(str).map({n: one.digest for n, one in frozen.items()})
    ran = frame["status"].isin(RAN) & ~frame["control"].astype(bool) | (frame["attack"] == PRIOR)
    kept = frame[(frame["protocol_digest"].astype(str) == digests) & ran]
    kept = kept[kept["trial"] >= 0].reset_index(drop=True)
    if kept.empty:
        return {}
    for metric in {one.primary for one in frozen.values() if one.primary.unit == "dB"}:
        if metric.name in kept:
            kept = kept.assign(**{metric.name: kept[metric.name].clip(upper=ENOUGH_DB)})
    kept = stats.judged(stats.tidy(kept), {name: one.scale for name, one in frozen.items()})
    groups = kept.groupby(CELL, observed=True)
    code = np.asarray(groups.ngroup(), np.int64)
    leads = estimates(kept["lead"].to_numpy(float), code)
    found = {}
    for number, (place, rows) in enumerate(groups[[*_VERSIONS, _FINGERPRINT]]):
        if number in leads:
            made = rows.astype(str).drop_duplicates()
            versions = frozenset(made[_VERSIONS].itertuples(index=False, name=None))
            protocol, defense, attack = map(str, place)
            lead = _Lead(leads[number], versions, frozenset(made[_FINGERPRINT]))
            found[protocol, defense, attack] = lead
    return found
