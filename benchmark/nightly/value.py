"""What a night runs first: what completes a protocol, then what could still move a rank."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmark.running.cost import Prediction
from benchmark.running.plan import Group, survey


def by_value(
    groups: Sequence[Group],
    results: Path,
    ranks: Mapping[tuple[str, str], int],
    *,
    seconds: float,
    device: str,
    cores: int,
) -> list[Group]:
    """Return groups by what they are worth in a time, those of a protocol beside one another.

    First the protocols that are completed within the time, the cheapest before the others; then
    those with attacks that share a rank, which more trials may tell apart; then the rest. In a
    protocol likewise, from the cheapest.

    Args:
        groups: of a run.
        results: whose records tell what is due, and what it takes.
        ranks: of each attack in each protocol, as the board has them.
        seconds: of the time.
        device: `cpu` or `cuda`.
        cores: that a search uses.
    """
    found = survey(groups, results)
    model = Prediction(found.due, found.records, results, device=device, cores=cores)
    left: dict[tuple[str, str], float] = defaultdict(float)
    for cell, trials in found.due:
        left[cell.protocol.name, cell.defense.label] += model.of(cell, len(trials))
    of_protocol: dict[str, float] = defaultdict(float)
    for (name, _), taken in left.items():
        of_protocol[name] += taken
    shared = Counter((name, rank) for (name, _), rank in ranks.items())
    tied = {key for key, rank in ranks.items() if shared[key[0], rank] > 1}
    complete, spent = set[str](), 0.0
    for name, taken in sorted(of_protocol.items(), key=lambda each: (each[1], each[0])):
        spent += taken
        if spent <= seconds:
            complete.add(name)

    def undecided(group: Group) -> bool:
        return any((group.protocol.name, attack.label) in tied for attack in group.attacks)

    open_names = {group.protocol.name for group in groups if undecided(group)}

    def place(group: Group) -> tuple[int, float, str, bool, float, str]:
        name, label = group.protocol.name, group.defense.label
        tier = 0 if name in complete else 1 if name in open_names else 2
        return tier, of_protocol[name], name, not undecided(group), left[name, label], label

    return sorted(groups, key=place)
