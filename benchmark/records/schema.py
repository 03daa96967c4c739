"""What is kept of a trial: one record, and where it comes from."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from benchmark.metrics import Excerpt
from benchmark.versions import is_raised

SCHEMA = 2
"""The number of the files' form; raised where an older program could not read a newer file."""
Status = Literal["completed", "failed", "timed_out", "not_applicable", "unavailable"]
FailureKind = Literal[
    "timeout",
    "out_of_memory",
    "crashed",
    "invalid_answer",
    "mutated",
    "refused",
    "defense",
    "model_refused",
]
"""Why a trial has no answer: its attack passed its limit of time or of memory, raised or died,
answered what is no answer, wrote to what it was shown, or gave up itself; its defense failed, and
no attack was asked; or its client refused the model that a malicious server had sent."""


Wall = Literal["bubblewrap", "absent"]


class Provenance(BaseModel):
    """Where a record comes from."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    commit: str | None
    """Commit of the repository the code ran from; None outside one."""
    dirty: bool | None
    """Whether that checkout had changes outside its results; None outside a repository."""
    versions: dict[str, str]
    """Library versions: gradleak, python, torch, timm, numpy."""
    hardware: str
    """Processor, with its instructions, or GPU."""
    threads: int | None = None
    """Of the processor; None on a GPU."""
    key: str | None = None
    """Digest of the key that the clients' secret draws hang on; None of the public one."""
    wall: Wall | None = None
    """What stood round the code that answered; None where it ran in the harness's own process."""

    @property
    def place(self) -> Provenance:
        """Machine, libraries, threads and key: where these are the same, so is every bit."""
        return self.model_copy(update={"commit": None, "dirty": None, "wall": None})


class Identity(BaseModel):
    """What decides whether a record still counts, and the fingerprints that warn.

    Versions are raised by people; fingerprints are digests of what the source says.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol_digest: str
    attack_version: str
    attack_fingerprint: str
    defense_version: str
    defense_fingerprint: str
    harness_version: str
    harness_fingerprint: str

    def is_raised(self, was: Identity) -> bool:
        """Tell whether a record of another identity is due again under this one."""
        return any(map(is_raised, self.decides, was.decides))

    @property
    def decides(self) -> tuple[str, str, str, str]:
        """The part that makes a cell due where it is raised."""
        return (
            self.protocol_digest,
            self.attack_version,
            self.defense_version,
            self.harness_version,
        )


class Record(BaseModel):
    """One trial of one cell; `trial` is None where the whole cell has one verdict."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: str
    defense: str
    """Name and arguments, `name,key=value`; so too the attack's."""
    attack: str
    description: dict[str, bool | int | float | str | None] = {}
    """What the defense says of itself to anyone: its arguments in full, and what it promises."""
    identity: Identity
    control: bool
    rounding_decides: bool = False
    """Whether the attack's answers hang on the last bit: on another machine they are others."""
    threat: str
    seed: int
    trial: int | None
    status: Status
    kind: FailureKind | None = None
    """Of a failed or timed-out trial."""
    reason: str | None = None
    metrics: dict[str, float | None]
    """Name to number; None where the metric is unavailable or the cell was not run. A failed or
    timed-out trial carries the scores of the prior-only reconstruction."""
    seconds: float | None = None
    """The attack's own wall-clock seconds on this trial."""
    gradient_evaluations: int | None = None
    peak_bytes: int | None = None
    """The attack's peak memory above its start, over the stack the trial ran in."""
    provenance: Provenance
    excerpt: Excerpt | None = None
    """Of text, what a reader is shown."""

    @property
    def key(self) -> tuple[str, str, str, int, int | None]:
        """What a record is of; of two records of one key the later counts."""
        return self.protocol, self.defense, self.attack, self.seed, self.trial
