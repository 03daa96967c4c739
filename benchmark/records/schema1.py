"""The first form of a record: one line that says everything, `<protocol>/<defense>/<attack>.jsonl`.

Its digests were of source bytes. They stand where versions stand now, so that such a record is
read, shown and exported, and counts as made by another version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from benchmark.metrics import Excerpt
from benchmark.records.schema import FailureKind, Identity, Provenance, Record

_EXCERPT = TypeAdapter(Excerpt | None)
_UNKNOWN = "unknown"
_FAILED: dict[str, FailureKind] = {"failed": "crashed", "timed_out": "timeout"}


def read(content: Mapping[str, Any]) -> Record:
    """Return the record of a line.

    Raises:
        KeyError: a field is missing.
        ValueError: a field holds what it may not.
    """
    hardware, _, threads = str(content["provenance"]["hardware"]).rpartition(", ")
    told = threads.endswith(" threads")
    identity = Identity(
        protocol_digest=content["protocol_digest"],
        attack_version=f"source {content['attack_digest']}",
        attack_fingerprint=_UNKNOWN,
        defense_version=f"source {content['defense_digest']}",
        defense_fingerprint=_UNKNOWN,
        harness_version=_UNKNOWN,
        harness_fingerprint=_UNKNOWN,
    )
    provenance = Provenance(
        commit=content["provenance"]["commit"],
        dirty=content["provenance"]["dirty"],
        versions=content["provenance"]["versions"],
        hardware=hardware if told else content["provenance"]["hardware"],
        threads=int(threads.split()[0]) if told else None,
    )
    kept = ("protocol", "defense", "attack", "control", "threat", "seed", "trial", "status")
    numbers = ("reason", "metrics", "seconds", "gradient_evaluations", "peak_bytes")
    return Record(
        **{name: content[name] for name in (*kept, *numbers)},
        identity=identity,
        kind=_FAILED.get(content["status"]),
        provenance=provenance,
        excerpt=_EXCERPT.validate_python(content.get("excerpt")),
    )
