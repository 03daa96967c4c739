"""What records stand on now: which are outdated, which unverified, and what was attested.

A record by another version than the present one is outdated: it is due again. One of the present
versions whose fingerprints are not the present ones is unverified, and stands all the same, unless
`attestations.jsonl` in its results folder says, a line each, that trials recorded under one
fingerprint were run again under another and came out the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from benchmark.errors import PluginError, RecordError
from benchmark.identity import harness_fingerprint, harness_version
from benchmark.protocol import Protocol
from benchmark.records import Identity, Record
from benchmark.records.files import locked
from benchmark.records.storage import append_text
from benchmark.registry import Registry
from benchmark.versions import is_raised

if TYPE_CHECKING:  # slow to import
    import pandas as pd
    from scipy.cluster.hierarchy import DisjointSet

PartKind = Literal["protocol", "attack", "defense", "harness"]
Part = tuple[PartKind, str]
"""A kind and a name; the harness has none."""
Doubt = Literal["outdated", "unverified"]
_NAMED = 3  # parts that a line names


class Source(NamedTuple):
    """What a part is, or was; a protocol is told by its digest alone."""

    version: str
    fingerprint: str = ""


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
        text = self.path.read_text(encoding="utf-8") if self.path.is_file() else ""
        whole = text[: text.rfind("\n") + 1]  # a tail that a kill left is cut off by the next one
        for number, line in enumerate(whole.splitlines(), start=1):
            try:
                self._take(Attestation.model_validate_json(line))
            except ValidationError as error:
                said = error.errors()[0]["msg"]
                raise RecordError(f"{self.path}:{number}: not an attestation: {said}") from error

    def add(self, one: Attestation) -> None:
        """Keep an attestation."""
        with locked(self.path):
            append_text(self.path, f"{one.model_dump_json()}\n")
        self._take(one)

    def equal(self, part: Part, old: str, new: str) -> bool:
        """Tell whether a part under one fingerprint is as good as under another."""
        if old == new:
            return True
        same = self._same.get(part)
        if same is None or old not in same or new not in same:
            return False
        return bool(same.connected(old, new))

    def _take(self, one: Attestation) -> None:
        from scipy.cluster.hierarchy import DisjointSet  # slow to import

        same = self._same.setdefault((one.part, one.name), DisjointSet())
        same.add(one.old)
        same.add(one.new)
        same.merge(one.old, one.new)


class Standing:
    """Tells what records stand on now.

    Args:
        attested: of their results folder.
        registry: of the submissions as they are.
        protocols: as they are; the records of another are never outdated by it.
    """

    def __init__(
        self, attested: Attestations, registry: Registry, protocols: Iterable[Protocol]
    ) -> None:
        self._attested, self._registry = attested, registry
        self._now: dict[Part, Source | None] = {
            ("protocol", one.name): Source(one.digest) for one in protocols
        }

    def now(self, part: Part) -> Source | None:
        """Return what a part is at present; None where it is no more."""
        if part not in self._now:
            self._now[part] = self._present(part)
        return self._now[part]

    def raised(self, protocol: str, attack: str, defense: str, identity: Identity) -> list[Part]:
        """Return the parts of a cell that have another version now: its records are outdated.

        Args:
            protocol: its name.
            attack: its label, or name.
            defense: likewise.
            identity: what its records stand on.
        """
        were = _sources(attack, defense, identity)
        were["protocol", protocol] = Source(identity.protocol_digest)
        present = {part: self.now(part) for part in were}
        return [
            part
            for part, now in present.items()
            if now and is_raised(now.version, were[part].version)
        ]

    def moved(self, attack: str, defense: str, identity: Identity) -> dict[Part, str]:
        """Return the parts of a cell that are neither as they were nor attested, as they were.

        Args:
            attack: its label, or name.
            defense: likewise.
            identity: what its records stand on.
        """
        were = _sources(attack, defense, identity)
        return {
            part: was.fingerprint
            for part, was in were.items()
            if (now := self.now(part)) is None
            or not self._attested.equal(part, was.fingerprint, now.fingerprint)
        }

    def unverified(self, records: Iterable[Record]) -> list[Record]:
        """Return the records, none of them outdated, of which some part has moved."""
        told: dict[tuple[str, str, Identity], bool] = {}
        found = []
        for one in records:
            of = (one.attack, one.defense, one.identity)
            if of not in told:
                told[of] = bool(self.moved(*of))
            if told[of]:
                found.append(one)
        return found

    def tell_outdated(self, records: Sequence[Record]) -> str:
        """Return a line on records that are outdated, and on what was raised since."""
        raised = [
            part
            for of in {(one.protocol, one.attack, one.defense, one.identity) for one in records}
            for part in self.raised(*of)
        ]
        return (
            f"{len(records)} records are of an older version, due again, because of "
            f"{name_few(raised)}"
        )

    def count(self, frame: pd.DataFrame) -> dict[Doubt, Counter[str]]:
        """Return how many rows of a protocol's records are in doubt, by attack."""
        found: dict[Doubt, Counter[str]] = {"outdated": Counter(), "unverified": Counter()}
        columns = ["protocol", "attack", "defense", *Identity.model_fields]
        groups = frame.groupby(columns, observed=True).size().reset_index()
        for row in groups.itertuples(index=False):
            protocol, attack, defense, *fields, rows = map(str, row)
            identity = Identity(**dict(zip(Identity.model_fields, fields, strict=True)))
            if self.raised(protocol, attack, defense, identity):
                found["outdated"][attack] += int(rows)
            elif self.moved(attack, defense, identity):
                found["unverified"][attack] += int(rows)
        return found

    def _present(self, part: Part) -> Source | None:
        kind, name = part
        if kind == "harness":
            return Source(harness_version(), harness_fingerprint())
        if kind == "protocol":
            return None
        try:
            found = self._registry.find(kind, f"{name},defaults")[0]
        except PluginError:
            return None
        return Source(found.version, found.fingerprint)


def spell(parts: Iterable[Part]) -> list[str]:
    """Return parts in words, each once, sorted: `attack dlg`, `harness`."""
    return sorted({" ".join(filter(None, part)) for part in parts})


def name_few(parts: Iterable[Part]) -> str:
    """Return parts in words, the first of them and how many more there are."""
    names = spell(parts)
    more = f" and {len(names) - _NAMED} more parts" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"


def _sources(attack: str, defense: str, identity: Identity) -> dict[Part, Source]:
    """Return the source that a cell's records stand on."""
    of = identity
    return {
        ("attack", _name(attack)): Source(of.attack_version, of.attack_fingerprint),
        ("defense", _name(defense)): Source(of.defense_version, of.defense_fingerprint),
        ("harness", ""): Source(of.harness_version, of.harness_fingerprint),
    }


def _name(label: str) -> str:
    return label.split(",", 1)[0]
