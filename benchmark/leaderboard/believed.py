"""Records are claims until they hold: what cannot be true is left out, with its file and line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmark.leaderboard.frozen import Frozen
from benchmark.metrics import METRICS, OF_INPUT
from benchmark.records import Table, file_of, read_table
from benchmark.registry import LABEL, Registry
from benchmark.stats import RAN

_ROUNDING = 1e-6  # by which a score may lie outside of its range

Rows = NDArray[np.bool_]


def believed(results: Path, registry: Registry) -> Table:
    """Read a results folder less the records that cannot be true.

    A record stands where its numbers are finite and within their ranges, its trial is one of the
    protocol's, its status is one that a trial or a verdict can have, its submissions have names
    that could be theirs, and it is a control's only where the registry says so. Of an attack from
    outside the seed is the protocol's too: its author could choose those that suit it. Of another
    version of a protocol, which the board leaves out, trials and seeds are not looked at.

    Returns:
        The records; `damaged` tells of each file what was refused, where it first stands and how
        often.

    Raises:
        RecordError: no such folder, or a frozen protocol that is missing or malformed.
    """
    table = read_table(results)
    frame = table.frame
    if frame.empty:
        return table
    names = sorted(map(str, frame["protocol"].unique()))
    frozen = {name: Frozen.read(results, name) for name in names}
    refused = np.zeros(len(frame), bool)
    said = list(table.damaged)
    for what, wrong in _wrong(frame, frozen, registry):
        new = wrong & ~refused
        refused |= new
        if new.any():
            said += _told(results, frame[new], what)
    return Table(frame[~refused].reset_index(drop=True), said)


def _wrong(
    frame: pd.DataFrame, frozen: Mapping[str, Frozen], registry: Registry
) -> Iterator[tuple[str, Rows]]:
    """Yield what is wrong, in words, and the rows of which it is."""
    for name in map(str, frame.columns):
        metric = METRICS.get(name.removesuffix(OF_INPUT))
        if metric is not None:
            low, high = metric.lowest, metric.highest
            yield (
                f"{name}: wanted a number from {low:g} to {high:g}",
                _outside(frame[name], low, high),
            )
    for name in ("seconds", "gradient_evaluations", "peak_bytes"):
        yield f"{name}: wanted a number from 0 on", _outside(frame[name], 0, np.inf)
    trial, ran = frame["trial"].to_numpy(), frame["status"].isin(RAN).to_numpy()
    yield "status: wanted a trial's of a trial, a verdict's of a whole cell", (trial >= 0) != ran
    for kind in ("attack", "defense"):
        labels = frame[kind].astype(str)
        odd = {label for label in labels.unique() if not LABEL.fullmatch(label)}
        yield f"{kind}: wanted a name of letters, digits and _,=.+-", labels.isin(odd).to_numpy()
    names = frame["attack"].astype(str).str.partition(",")[0]
    outside = ~names.isin(registry.own).to_numpy()
    control = names.isin(registry.controls).to_numpy()
    yield "control: wanted as the registry says", frame["control"].to_numpy(bool) != control
    digest = frame["protocol_digest"].astype(str).to_numpy()
    for protocol, rows in frame.groupby("protocol", observed=True).indices.items():
        one = frozen[str(protocol)]
        current = np.zeros(len(frame), bool)
        current[rows] = digest[rows] == one.digest
        trials, seeds = one.content.get("trials"), one.content.get("seeds")
        if isinstance(trials, int):
            yield f"trial: wanted one of {trials}, from 0 on", current & (trial >= trials)
        if isinstance(seeds, list):
            strange = ~frame["seed"].isin(seeds).to_numpy()
            yield f"seed: wanted one of {', '.join(map(str, seeds))}", current & strange & outside


def _outside(column: pd.Series[float], low: float, high: float) -> Rows:
    values = column.to_numpy(float)
    within = (values >= low - _ROUNDING) & (values <= high + _ROUNDING) & np.isfinite(values)
    there: Rows = ~np.isnan(values) & ~within
    return there


def _told(results: Path, rows: pd.DataFrame, what: str) -> Iterator[str]:
    """Yield a line a file, with the line of the first record and how many more there are."""
    for (protocol, attack), own in rows.groupby(["protocol", "attack"], observed=True):
        path = file_of(results, str(protocol), str(attack))
        places = _places(path)
        keys = zip(own["defense"].astype(str), own["seed"], own["trial"], strict=True)
        numbers = sorted(places[key] for key in keys if key in places)
        where = f"{path}:{numbers[0]}" if numbers else str(path)
        more = f", and {len(own) - 1} more" if len(own) > 1 else ""
        yield f"{where}: refused: {what}{more}"


def _places(path: Path) -> dict[tuple[str, int, int], int]:
    """Return the last line of each record of a file, by defense, seed and trial."""
    if not path.is_file():
        return {}  # of the first form, in a file a defense
    lines = [json.loads(raw) if raw.strip() else {} for raw in path.read_bytes().splitlines()]
    cells = {line["cell"]: line["defense"] for line in lines if "cell" in line}
    return {
        (cells[line["in"]], line["seed"], line.get("trial", -1)): number
        for number, line in enumerate(lines, start=1)
        if line.get("in") in cells
    }
