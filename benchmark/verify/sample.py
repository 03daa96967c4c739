"""Which recorded trials are run again: some of every cell, the cheapest cells first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from benchmark.attestations import Part, Standing
from benchmark.cell import Cell
from benchmark.errors import PluginError
from benchmark.protocol import Protocol
from benchmark.records import Identity, Record
from benchmark.registry import Registry, exactly
from benchmark.running.plan import due_trials, outdated
from benchmark.seeds import generator


@dataclass(frozen=True)
class Stratum:
    """What is run again of one cell under one seed.

    Attributes:
        records: the recorded trials, or the one verdict on the cell.
        beside: all trials recorded under the seed, with which a stack is as it was.
        moved: the parts that are neither as they were nor attested, with the old fingerprints.
        seconds: that the attack took for these trials.
    """

    cell: Cell
    records: tuple[Record, ...]
    beside: tuple[int, ...]
    moved: dict[Part, str]
    seconds: float


def strata(
    records: Iterable[Record],
    protocols: Sequence[Protocol],
    registry: Registry,
    standing: Standing,
    *,
    size: int,
    changed: bool,
) -> list[Stratum]:
    """Return a stratum of each recorded cell, protocol by protocol, the cheapest first.

    Which trials are drawn hangs on the present fingerprints: another change draws others.

    Args:
        records: current ones; the later of one key counts.
        protocols: those to look at.
        registry: of the submissions.
        standing: tells what has moved.
        size: trials a cell, at most.
        changed: keep to cells of which a part has moved.
    """
    by_name = {protocol.name: protocol for protocol in protocols}
    groups: dict[tuple[str, str, str, Identity], dict[int, list[Record]]] = {}
    for one in records:
        if one.protocol in by_name and one.status != "unavailable":
            key = (one.protocol, one.defense, one.attack, one.identity)
            groups.setdefault(key, {}).setdefault(one.seed, []).append(one)
    found = []
    for (name, defense, attack, identity), by_seed in groups.items():
        moved = standing.moved(attack, defense, identity)
        if changed and not moved:
            continue
        seed = min(by_seed)  # all cells of a protocol share a round
        cell = _cell(by_name[name], defense, attack, seed, registry)
        if cell is not None and not cell.identity.is_raised(identity):
            chosen = _drawn(by_seed[seed], cell, size)
            beside = sorted({r.trial for r in by_seed[seed] if r.trial is not None})
            seconds = sum(r.seconds or 0.0 for r in chosen)
            found.append(Stratum(cell, chosen, tuple(beside), moved, seconds))
    dear: dict[str, float] = defaultdict(float)
    for each in found:
        dear[each.cell.protocol.name] += each.seconds
    return sorted(
        found, key=lambda s: (dear[s.cell.protocol.name], s.cell.protocol.name, s.seconds)
    )


def due_again(
    records: Iterable[Record], protocols: Iterable[Protocol], registry: Registry
) -> list[Record]:
    """Return the records of protocols that are outdated: a run of their cells makes them anew."""
    by_name = {protocol.name: protocol for protocol in protocols}
    groups: dict[tuple[str, str, str, int], list[Record]] = {}
    for one in records:
        if one.protocol in by_name:
            key = (one.protocol, one.defense, one.attack, one.seed)
            groups.setdefault(key, []).append(one)
    found = []
    for (name, defense, attack, seed), mine in groups.items():
        cell = _cell(by_name[name], defense, attack, seed, registry)
        if cell is not None:
            due = due_trials(mine, cell, range(cell.protocol.trials))
            found += outdated(mine, cell, due)
    return found


def _cell(
    protocol: Protocol, defense: str, attack: str, seed: int, registry: Registry
) -> Cell | None:
    """Return a recorded cell; None where a submission is no more, so that nothing can be run."""
    try:
        (against,) = registry.find("defense", exactly(defense))
        (by,) = registry.find("attack", exactly(attack))
    except PluginError:
        return None
    return Cell(protocol, against, by, seed)


def _drawn(records: list[Record], cell: Cell, size: int) -> tuple[Record, ...]:
    """Return some of a cell's trials, by draws that hang on the present source."""
    last = list({record.trial: record for record in records}.values())
    now = cell.identity
    names = (cell.attack.label, cell.defense.label, now.attack_fingerprint, now.harness_fingerprint)
    order = torch.randperm(len(last), generator=generator(0, cell.protocol.name, *names))
    return tuple(last[i] for i in sorted(order.tolist()[:size]))
