"""What published numbers ask to be run: orders to the runner, and to the trainings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from benchmark.errors import PluginError
from benchmark.published import OF_TRAINING, Measured, Published
from benchmark.running.plan import Group, groups


@dataclass(frozen=True)
class Cells:
    """Attacks against one defense in one protocol; no trials or seeds are the protocol's."""

    protocol: str
    defense: str
    trials: int | None
    seeds: tuple[int, ...] | None
    attacks: tuple[str, ...]

    def group(self, measured: Measured) -> list[Group]:
        """Return what the planner knows them as."""
        protocol = measured.protocol(self.protocol)
        attacks = [measured.submission("attack", label, protocol) for label in self.attacks]
        defense = measured.submission("defense", self.defense, protocol)
        return groups([protocol], [defense], attacks, self.seeds, self.trials)


@dataclass(frozen=True)
class Trainings:
    """Defenses to train under in one utility protocol; no seeds are the protocol's."""

    protocol: str
    seeds: tuple[int, ...] | None
    defenses: tuple[str, ...]


def cells(numbers: Iterable[Published], measured: Measured) -> list[Cells]:
    """Return the cells that numbers ask for, each once; of what cannot be built none."""
    found: dict[tuple[str, str, int | None, tuple[int, ...] | None], dict[str, None]] = {}
    for one in numbers:
        answer = one.answer
        if answer.needs is not None or answer.measure != "records":
            continue
        try:
            measured.submission("attack", one.attack, measured.protocol(answer.protocol))
        except PluginError:  # the verdict tells why
            continue
        key = (answer.protocol, answer.defense, answer.trials, answer.seeds)
        found.setdefault(key, {})[one.attack] = None
    return [Cells(*key, tuple(attacks)) for key, attacks in found.items()]


def trainings(numbers: Iterable[Published]) -> list[Trainings]:
    """Return the trainings that numbers ask for, each once."""
    found: dict[tuple[str, tuple[int, ...] | None], dict[str, None]] = {}
    for one in numbers:
        answer = one.answer
        if answer.needs is not None or answer.measure not in OF_TRAINING:
            continue
        wanted = found.setdefault((answer.protocol, answer.seeds), {})
        wanted |= dict.fromkeys(filter(None, (answer.baseline, answer.defense)))
    return [Trainings(*key, tuple(defenses)) for key, defenses in found.items()]
