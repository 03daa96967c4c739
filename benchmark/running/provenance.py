"""Where a record comes from: commit, versions, hardware."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

import torch

from benchmark.errors import BenchmarkError, RecordError
from benchmark.git import git
from benchmark.identity import ROOT
from benchmark.records import Provenance, Record, Wall
from benchmark.registry import Submission
from benchmark.running.defending import GuardedDefense
from benchmark.running.sandbox import Sandbox
from benchmark.seeds import PUBLIC, Key
from benchmark.worker import Worker

_KEY_BYTES = 16  # fewer could be tried
_PACKAGES = ("gradleak", "torch", "timm", "numpy", "scikit-image")
_NOT_CODE = (":!results", ":!leaderboard.md", ":!leaderboard", ":!docs")


def provenance(device: torch.device, key: Key = PUBLIC) -> Provenance:
    """Return the provenance of records made now on a device under a key."""
    commit = git(ROOT, "rev-parse", "HEAD") if (ROOT / ".git").exists() else None
    changes = None if commit is None else git(ROOT, "status", "--porcelain", "--", ".", *_NOT_CODE)
    versions = {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
    return Provenance(
        commit=None if commit is None else commit.strip(),
        dirty=None if changes is None else bool(changes),
        versions=versions,
        hardware=hardware_of(device),
        threads=None if device.type == "cuda" else torch.get_num_threads(),
        key=key.digest,
    )


def made_by(place: Provenance, worker: Worker, defense: Submission) -> Provenance:
    """Return where the records of a cell come from, with the wall that stood round its code.

    Args:
        place: what the run's records share.
        worker: where the attack runs.
        defense: runs in this process, unless it is guarded.
    """
    wall: Wall | None = worker.wall if isinstance(worker, Sandbox) else None
    if isinstance(defense, GuardedDefense):
        wall = wall or "bubblewrap"
    elif defense.outside:
        wall = "absent"
    return place.model_copy(update={"wall": wall})


def read_key(path: Path | None) -> Key:
    """Read the key of a run; without a file it is the public one.

    Raises:
        BenchmarkError: no such file, or too short a key.
    """
    if path is None:
        return PUBLIC
    try:
        material = path.read_bytes()
    except OSError as error:
        raise BenchmarkError(f"--key {path}: cannot be read: {error.strerror}") from error
    if len(material) < _KEY_BYTES:
        raise BenchmarkError(
            f"--key {path}: {len(material)} bytes; wanted {_KEY_BYTES} random ones at least"
        )
    return Key(material)


def check_key(records: Iterable[Record], key: Key, results: Path) -> None:
    """Keep the records of two keys apart.

    Raises:
        RecordError: a record was made under another key.
    """
    for other in {record.provenance.key for record in records} - {key.digest}:
        theirs, ours = (digest or "the public one" for digest in (other, key.digest))
        raise RecordError(
            f"{results}: its records were made under the key {theirs}, this is {ours}: wanted that "
            "key by --key, or other --results"
        )


def hardware_of(device: torch.device) -> str:
    """Return the name of a GPU, or of the processor with the kernels that torch takes."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.backends.cpu.get_cpu_capability()}"


def _processor() -> str:
    """Return the processor's name, and its family and model, since one name may be of several."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    said = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    if "model name" not in said:
        return platform.processor() or platform.machine()
    numbers = [said[key] for key in ("cpu family", "model") if key in said]
    return " ".join([said["model name"], "/".join(numbers)]).strip()
