"""What a run would cost: from recorded seconds, else from a count of operations.

Those are of attacks alone. What clients, defenses and scores take besides is not recorded by trial:
it is learned from how long earlier runs took (`learned.py`).
"""

from __future__ import annotations

import dataclasses
import json
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from tabulate import tabulate

from benchmark.cell import Cell
from benchmark.errors import DataUnavailable, ProtocolError
from benchmark.protocol import Protocol, TextProtocol, VisionProtocol
from benchmark.records import Record, file_of, known
from benchmark.registry import Submission
from benchmark.running.plan import Group
from benchmark.victims import SIZES, ImageSettings, ImageSpec, TextSettings, TextSpec, operations

Source = Literal["recorded", "estimated", "unknown"]

_RATE = {"cpu": 6e10, "cuda": 2e13}
"""Operations a second of a core, or of a GPU: what the recorded searches reach on a core of an
EPYC, and what is stated for an A100 in float32."""
START = 0.03
"""Seconds of a cell beside its attack, on small victims: what is granted, scored and written."""
_PASSES = 8  # forward passes that cost as much as one gradient of a distance of gradients


@dataclasses.dataclass
class Cost:
    """What some cells would take: attacks' seconds, where they have an estimate; trials by source.

    Attributes:
        cells: how many cells they are.
        ratio: how many times longer than their attacks the like of them took.
    """

    seconds: float = 0.0
    trials: Counter[Source] = dataclasses.field(default_factory=Counter)
    cells: int = 0
    ratio: float = 1.0

    def add(self, trials: int, seconds: float | None, source: Source) -> None:
        """Count trials of so many seconds each, None where unknown."""
        self.seconds += trials * (seconds or 0.0)
        self.trials[source] += trials

    @property
    def whole(self) -> float:
        """The seconds of a run of one process."""
        return (self.seconds + START * self.cells) * self.ratio

    def __str__(self) -> str:
        if self.trials.total() == self.trials["unknown"]:
            return "unknown"
        minutes = round(self.whole / 60)
        time = f"{minutes // 60}:{minutes % 60:02}" if self.whole >= 60 else "< 0:01"
        return f"{time} and more" if self.trials["unknown"] else time


class Prediction:
    """What due cells would take.

    Args:
        due: cells with their trials.
        known: records of the protocols that are due.
        results: where the other protocols' records lie; read where the due ones have none.
        device: `cpu` or `cuda`.
        cores: that a search uses, where on the CPU.
        ratios: how many times longer than their attacks runs took, by protocol; of others, by "".
    """

    def __init__(
        self,
        due: Sequence[tuple[Cell, list[int]]],
        known: Iterable[Record],
        results: Path,
        device: str,
        cores: int,
        ratios: Mapping[str, float] | None = None,
    ) -> None:
        past = _Past(known, results)
        rate = _RATE[device] * (cores if device == "cpu" else 1)
        ratios = ratios or {}
        self._trial: dict[tuple[str, str], tuple[float | None, Source]] = {}
        self.costs: dict[str, Cost] = {}
        """By protocol."""
        self.seconds: dict[str, float] = {}
        """By the name of a cell."""
        for cell, trials in due:
            name = cell.protocol.name
            key = (name, cell.attack.label)
            if key not in self._trial:
                self._trial[key] = _trial(cell.protocol, cell.attack, past, rate)
            if name not in self.costs:
                self.costs[name] = Cost(ratio=ratios.get(name, ratios.get("", 1.0)))
            self.costs[name].add(len(trials), *self._trial[key])
            self.costs[name].cells += 1
            self.seconds[str(cell)] = self.of(cell, len(trials))

    def of(self, cell: Cell, trials: int) -> float:
        """Return the seconds of so many trials of a cell, those that are unknown none."""
        name = cell.protocol.name
        each = self._trial[name, cell.attack.label][0] or 0.0
        return (START + trials * each) * self.costs[name].ratio


def seconds_of(groups: Sequence[Group], results: Path, cores: int) -> list[float]:
    """Return what all trials of each group would take on the processor, done or due.

    What is unknown counts nothing.
    """
    files = {file_of(results, g.protocol.name, a.label) for g in groups for a in g.attacks}
    past = _Past((r for path in sorted(files) for r in known(path).records), results)
    rate, each = _RATE["cpu"] * cores, dict[tuple[str, str], float]()
    found = []
    for group in groups:
        trials, seconds = len(group.trials) * len(group.seeds), 0.0
        for attack in group.attacks:
            key = (group.protocol.name, attack.label)
            if key not in each:
                each[key] = _trial(group.protocol, attack, past, rate)[0] or 0.0
            seconds += trials * each[key]
        found.append(seconds)
    return found


def table(found: dict[str, Cost]) -> str:
    """Return a line a protocol, and a total where there are several."""
    whole = Cost()
    for one in found.values():
        whole.seconds += one.whole
        whole.trials += one.trials
    lines = {**found, "total": whole} if len(found) > 1 else found
    rows = [(name, cost.trials.total(), str(cost), _sources(cost)) for name, cost in lines.items()]
    return tabulate(rows, ["protocol", "trials due", "hours:minutes", "trials by source"])


def _sources(cost: Cost) -> str:
    order: tuple[Source, ...] = ("recorded", "estimated", "unknown")
    return ", ".join(f"{cost.trials[name]} {name}" for name in order if cost.trials[name])


def _trial(
    protocol: Protocol, attack: Submission, past: _Past, rate: float
) -> tuple[float | None, Source]:
    """Return the seconds of one trial, None where unknown, and where they come from."""
    if (seconds := past.own(protocol, attack)) is not None:
        return seconds, "recorded"
    if (seconds := past.scaled(protocol, attack)) is None:
        seconds = _counted(protocol, attack, rate)
    return seconds, "unknown" if seconds is None else "estimated"


class _Past:
    """The seconds that attacks took before."""

    def __init__(self, known: Iterable[Record], results: Path) -> None:
        self._results = results
        self._seconds: dict[tuple[str, str], list[float]] = defaultdict(list)
        for record in known:
            if record.seconds is not None or record.status == "not_applicable":  # that costs 0
                self._seconds[record.protocol, record.attack].append(record.seconds or 0.0)

    @cached_property
    def _frozen(self) -> list[dict[str, Any]]:
        """The protocols that have records."""
        read = (_read(path) for path in sorted(self._results.glob("*/protocol.json")))
        return [frozen for frozen in read if frozen is not None]

    def own(self, protocol: Protocol, attack: Submission) -> float | None:
        """Return the median of an attack in this very protocol."""
        found = self._seconds.get((protocol.name, attack.label))
        return statistics.median(found) if found else None

    def scaled(self, protocol: Protocol, attack: Submission) -> float | None:
        """Return the median in another protocol of the same victim, by batch and gradients.

        A control, which computes little, is taken from any protocol.
        """
        due = protocol.frozen()
        for other in self._frozen:
            if not (attack.manifest.control or _victim(other) == _victim(due)):
                continue
            made = self._timed(other["name"], attack.label)
            if not made:
                continue
            seconds = statistics.median(seconds for seconds, _ in made)
            spent = statistics.median(spent for _, spent in made)
            gradients = _gradients(protocol, attack) / spent if spent else 1.0
            return seconds * gradients * _items(due) / _items(other)
        return None

    def _timed(self, protocol: str, attack: str) -> list[tuple[float, int]]:
        """Return seconds and gradients of the trials against one defense."""
        read = known(file_of(self._results, protocol, attack)).records
        return [(r.seconds, r.gradient_evaluations or 0) for r in read if r.seconds]


def _read(path: Path) -> dict[str, Any] | None:
    """Return a frozen protocol, or None where the file holds none."""
    try:
        frozen = json.loads(path.read_bytes())
        _victim(frozen), _items(frozen)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return {**frozen, "name": path.parent.name}


def _victim(frozen: dict[str, Any]) -> list[Any]:
    """Return what of a frozen protocol makes its victim slow or fast."""
    sizes = ("architecture", "patch", "width", "depth", "heads", "mlp")
    return [*(frozen["victim"].get(key) for key in sizes), frozen["data"].get("size")]


def _items(frozen: dict[str, Any]) -> int:
    """Return the images, or the tokens, of a trial."""
    federation = frozen["federation"]
    batch = federation.get("users", 1) * federation.get("batch_size", 1)
    return int(batch * frozen["data"].get("length", 1))


def _gradients(protocol: Protocol, attack: Submission) -> int:
    """Return about how many gradients an attack takes of those granted: a search all it can."""
    granted = protocol.budget.gradient_evaluations
    if attack.outside:
        return granted
    fields = dataclasses.asdict(attack.build())
    return min(granted, fields.get("steps", granted) * fields.get("restarts", 1))


def _counted(protocol: Protocol, attack: Submission, rate: float) -> float | None:
    """Return the seconds of a search by its floating-point operations; None for any other."""
    from benchmark.toolbox.matching import SearchAttack

    if attack.outside or not isinstance(attack.build(), SearchAttack):
        return None
    forward = _forward(protocol)
    return None if forward is None else _gradients(protocol, attack) * _PASSES * forward / rate


def _forward(protocol: Protocol) -> float | None:
    """Return the operations of a forward pass of a trial; None where there is no such network."""
    items = _items(protocol.frozen())
    try:
        if isinstance(protocol, TextProtocol):
            length = protocol.data.length
            return items / length * operations(text_spec(protocol.victim, length), length)
        assert isinstance(protocol, VisionProtocol)
        classes = len(protocol.data.entry.class_names)
        return float(items * operations(image_spec(protocol.victim, protocol.data.size, classes)))
    except (DataUnavailable, ProtocolError):
        return None


def text_spec(victim: TextSettings, length: int) -> TextSpec:
    """Return a victim of the vocabulary that it is published with."""
    most = max(length, victim.kind.positions)
    return TextSpec(**victim.model_dump(), vocabulary=victim.kind.vocabulary, length=most)


def image_spec(victim: ImageSettings, size: int, classes: int) -> ImageSpec:
    """Return a victim of colour images."""
    sizes = victim.model_dump(include={"architecture", *SIZES})
    return ImageSpec(
        **sizes, channels=3, size=size, classes=max(classes, 1), mean=(0, 0, 0), std=(1, 1, 1)
    )
