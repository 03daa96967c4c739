"""Which changes of the source were seen to change no answer.

`attestations.jsonl` in a results folder says, a line each, that trials recorded under one
fingerprint were run again under another and came out the same. Records whose fingerprints are the
present ones, or attested to be as good, are verified; the others are not, and stand all the same
until a version is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, ValidationError
from scipy.cluster.hierarchy import DisjointSet

from benchmark.errors import PluginError, RecordError
from benchmark.identity import harness_fingerprint
from benchmark.records import Identity, Record
from benchmark.records.storage import append_text
from benchmark.registry import Kind, Registry

PartKind = Literal["attack", "defense", "harness"]
Part = tuple[PartKind, str]
"""A kind and a submission's name; the harness has none."""
COLUMNS = ["attack", "attack_fingerprint", "defense", "defense_fingerprint", "harness_fingerprint"]


class Attestation(BaseModel):
    """That a part gives the same answers under two fingerprints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    part: PartKind
    name: str
    """Of the attack or the defense; empty of the harness."""
    version: str
    old: str
    new: str
    cells: int
    """Of how many cells trials were run again."""
    trials: int
    largest: dict[str, float]
    """Largest difference of each metric that differed at all."""
    commit: str | None
    dirty: bool | None


class Attestations:
    """What has been attested in a results folder."""

    def __init__(self, results: Path) -> None:
        """Read a results folder's attestations, if it has any.

        Raises:
            RecordError: a line is none.
        """
        self.path = results / "attestations.jsonl"
        self._same: dict[Part, DisjointSet] = {}
        lines = self.path.read_text(encoding="utf-8").splitlines() if self.path.is_file() else []
        for number, line in enumerate(lines, start=1):
            try:
                self._take(Attestation.model_validate_json(line))
            except ValidationError as error:
                said = error.errors()[0]["msg"]
                raise RecordError(f"{self.path}:{number}: not an attestation: {said}") from error

    def add(self, made: Iterable[Attestation]) -> None:
        """Keep attestations."""
        made = list(made)
        append_text(self.path, "".join(f"{one.model_dump_json()}\n" for one in made))
        for one in made:
            self._take(one)

    def equal(self, part: Part, old: str, new: str) -> bool:
        """Tell whether a part under one fingerprint is as good as under another."""
        if old == new:
            return True
        same = self._same.get(part, DisjointSet())
        return old in same and new in same and bool(same.connected(old, new))

    def _take(self, one: Attestation) -> None:
        same = self._same.setdefault((one.part, one.name), DisjointSet())
        same.add(one.old)
        same.add(one.new)
        same.merge(one.old, one.new)


class Standing:
    """Tells what records stand on now.

    Args:
        attested: of their results folder.
        registry: of the submissions as they are.
    """

    def __init__(self, attested: Attestations, registry: Registry) -> None:
        self._attested, self._registry = attested, registry
        self._now: dict[Part, str | None] = {}

    def now(self, part: Part) -> str | None:
        """Return the present fingerprint of a part; None of a submission that is no more."""
        if part not in self._now:
            self._now[part] = self._fingerprint(part)
        return self._now[part]

    def moved(self, attack: str, defense: str, identity: Identity) -> dict[Part, str]:
        """Return the parts of a cell that are neither as they were nor attested, as they were.

        Args:
            attack: its label, or name.
            defense: likewise.
            identity: what its records stand on.
        """
        prints = (identity.attack_fingerprint, identity.defense_fingerprint)
        were = _parts(attack, prints[0], defense, prints[1], identity.harness_fingerprint)
        return {part: was for part, was in were.items() if not self._stands(part, was)}

    def unverified(self, records: Iterable[Record]) -> list[Record]:
        """Return the records of which some part has moved."""
        told: dict[tuple[str, str, Identity], bool] = {}
        found = []
        for one in records:
            of = (one.attack, one.defense, one.identity)
            if of not in told:
                told[of] = bool(self.moved(*of))
            if told[of]:
                found.append(one)
        return found

    def count(self, frame: pd.DataFrame) -> Mapping[tuple[str, str], int]:
        """Return the number of unverified rows of a table of records, by protocol and attack."""
        found: dict[tuple[str, str], int] = {}
        groups = frame.groupby(["protocol", *COLUMNS], observed=True).size().reset_index()
        for row in groups.itertuples(index=False):
            protocol, attack, of_attack, defense, of_defense, harness, rows = map(str, row)
            were = _parts(attack, of_attack, defense, of_defense, harness)
            if not all(self._stands(part, was) for part, was in were.items()):
                found[protocol, attack] = found.get((protocol, attack), 0) + int(rows)
        return found

    def _stands(self, part: Part, was: str) -> bool:
        now = self.now(part)
        return now is not None and self._attested.equal(part, was, now)

    def _fingerprint(self, part: Part) -> str | None:
        kind, name = part
        if kind == "harness":
            return harness_fingerprint()
        of: Kind = kind
        try:
            return self._registry.find(of, f"{name},defaults")[0].fingerprint
        except PluginError:
            return None


def spell(parts: Iterable[Part]) -> list[str]:
    """Return parts in words, each once, sorted: `attack dlg`, `harness`."""
    return sorted({" ".join(filter(None, part)) for part in parts})


def _parts(
    attack: str, of_attack: str, defense: str, of_defense: str, of_harness: str
) -> dict[Part, str]:
    """Return the parts that a cell's records stand on, with their fingerprints."""
    return {
        ("attack", _name(attack)): of_attack,
        ("defense", _name(defense)): of_defense,
        ("harness", ""): of_harness,
    }


def _name(label: str) -> str:
    return label.split(",", 1)[0]
