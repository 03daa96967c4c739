"""Makes the records of cells in one process, and keeps what the next cell shares.

Every engine comes to this, in whichever process: data, victim and undefended updates stay for the
cells of one protocol and seed.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from benchmark.cell import Cell, run_cell
from benchmark.errors import BenchmarkError, DataUnavailable
from benchmark.federation import KEPT_BYTES, DefendedRound, Round
from benchmark.protocol import Protocol
from benchmark.records import Provenance, Record
from benchmark.registry import Submission
from benchmark.running.defending import Defending
from benchmark.running.device import settled
from benchmark.running.heard import Heard
from benchmark.running.order import workers
from benchmark.running.provenance import made_by, provenance
from benchmark.seeds import PUBLIC, Key
from benchmark.tracks import Setting, load_setting, round_key
from benchmark.worker import Worker


@dataclass(frozen=True)
class Terms:
    """What every process of a run is told."""

    device: str
    mirror: Path | None
    key: Key
    isolate: bool
    trust: bool
    kept_bytes: int = KEPT_BYTES


@dataclass(frozen=True)
class Made:
    """The records of a stack, or the verdict on a cell."""

    records: list[Record]
    about: Mapping[str, str | int] = field(default_factory=dict)
    """What is to be said of the protocol's data beside it."""
    said: str = ""
    """What submissions printed since the last."""
    seconds: float = 0.0
    """All that it took in its process: what is loaded, clients, defense, attack and scores."""


@dataclass(frozen=True)
class Broken:
    """Why a process could not go on: bad input in one line, or where our own code failed."""

    said: str
    bad_input: bool


class Maker:
    """Makes cells, one after the other.

    Args:
        worker_of: which worker runs a submission.
        provenance: goes into every record.
        device: where victims live.
        mirror: the local mirror of data sets and weights, if any.
        key: what clients draw in secret hangs on it.
        heard: takes what submissions say.
        guard: puts a wall round a defense, where that has none yet.
        kept_bytes: what the updates that a round holds may take, and again those of a defense.
    """

    def __init__(
        self,
        *,
        worker_of: Callable[[Submission], Worker],
        provenance: Provenance,
        device: torch.device,
        mirror: Path | None,
        key: Key = PUBLIC,
        heard: Heard | None = None,
        guard: Callable[[Submission], Submission] | None = None,
        kept_bytes: int = KEPT_BYTES,
    ) -> None:
        self._worker_of, self._provenance = worker_of, provenance
        self._heard, self._guard = heard or Heard(), guard
        self._device, self._mirror, self._key = device, mirror, key
        self._kept_bytes = kept_bytes
        self._forget()

    @staticmethod
    def on(terms: Terms, stack: ExitStack) -> Maker:
        """Return what makes cells in a process of its own; leaving the stack ends its children."""
        device, heard = settled(terms.device), Heard()
        walls = {"isolate": terms.isolate, "trust": terms.trust}
        defending = stack.enter_context(Defending(device, heard))
        return Maker(
            worker_of=workers(device, stack, **walls, heard=heard),
            guard=None if terms.trust else defending.guard,
            heard=heard,
            provenance=provenance(device, terms.key),
            device=device,
            mirror=terms.mirror,
            key=terms.key,
            kept_bytes=terms.kept_bytes,
        )

    def make(self, cell: Cell, trials: Sequence[int]) -> Iterator[Made]:
        """Run the trials of a cell, and yield each stack's records.

        Raises:
            ProtocolError: the data are too few for the trials, or the victim does not fit them.
        """
        began = time.monotonic()
        if self._guard is not None:
            cell = replace(cell, defense=self._guard(cell.defense))
        try:
            setting, defended = self._setting(cell.protocol), self._defended(cell)
        except DataUnavailable as reason:
            verdict = cell.record(self._provenance, status="unavailable", reason=str(reason))
            yield Made([verdict])
            return
        worker = self._worker_of(cell.attack)
        place = made_by(self._provenance, worker, cell.defense)
        stacks = run_cell(cell, setting, defended, worker, trials, place)
        while True:
            with self._heard.listening():
                made = next(stacks, None)
            said = self._heard.take()
            if made is None and not said:
                return
            if any(record.kind == "mutated" for record in made or []):
                self._forget()  # shared tensors: trusted no more
            yield Made(made or [], setting.about_data(), said, time.monotonic() - began)
            began = time.monotonic()

    def told(self, cell: Cell, trials: Sequence[int]) -> Iterator[Made | Broken]:
        """Do as `make`, for another process: what ends it is told, not raised."""
        try:
            yield from self.make(cell, trials)
        except BenchmarkError as error:
            yield Broken(str(error), bad_input=True)
        except Exception:
            yield Broken(traceback.format_exc(), bad_input=False)

    def _forget(self) -> None:
        self._held: Setting | None = None
        self._round: tuple[tuple[int, Key], Round] | None = None
        self._behind: tuple[str, DefendedRound] | None = None

    def _setting(self, protocol: Protocol) -> Setting:
        if self._held is None or self._held.protocol != protocol:
            self._forget()
            self._held = load_setting(protocol, self._mirror, self._device)
        return self._held

    def _defended(self, cell: Cell) -> DefendedRound:
        """Return the round behind a cell's defense, whose updates its attacks share."""
        key = round_key(self._key, cell.protocol, cell.defense.label)
        if self._round is None or self._round[0] != (cell.seed, key):
            self._round = self._behind = None  # free the old victim before the next is made
            made = self._setting(cell.protocol).round(cell.seed, key)
            made.kept_bytes = self._kept_bytes
            self._round = (cell.seed, key), made
        label = cell.defense.label
        if self._behind is None or self._behind[0] != label:
            behind = DefendedRound(self._round[1], cell.defense.build(), label, self._key)
            self._behind = label, behind
        return self._behind[1]


def afresh(cell: Cell) -> Cell:
    """Return a cell that came from another process as the source here has it."""
    return Cell(cell.protocol, replace(cell.defense), replace(cell.attack), cell.seed)
