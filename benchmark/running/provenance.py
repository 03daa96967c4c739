"""Where a record comes from: commit, versions, hardware."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import torch

from benchmark.records import Provenance
from benchmark.registry import ROOT

_PACKAGES = ("gradleak", "torch", "timm", "numpy", "scikit-image")
_NOT_CODE = (":!results", ":!leaderboard.md", ":!leaderboard", ":!docs")


def provenance(device: torch.device) -> Provenance:
    """Return the provenance of records made now on a device."""
    commit = _git("rev-parse", "HEAD") if (ROOT / ".git").exists() else None
    changes = None if commit is None else _git("status", "--porcelain", "--", ".", *_NOT_CODE)
    versions = {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
    return Provenance(
        commit=commit,
        dirty=None if changes is None else bool(changes),
        versions=versions,
        hardware=_hardware(device),
    )


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_processor()}, {torch.get_num_threads()} threads"


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()
