"""What runs took beside what a plan said: by how much the next plan is to be corrected.

A line a run and protocol in `.costs.jsonl` of the results folder, of this machine alone and
committed nowhere: what was planned, what attacks alone took, with the start of each cell, and what
the processes took. The last two tell what clients, defenses and scores add.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmark.records.files import locked
from benchmark.records.storage import append_text
from benchmark.running.provenance import hardware_of

FILE = ".costs.jsonl"
_RUNS = 5  # the last so many of a protocol have a say


@dataclass(frozen=True)
class Learned:
    """How many times longer than their attacks alone runs on some hardware took.

    Args:
        results: the results folder.
        hardware: as records tell it.
        threads: of a process; None on a GPU.
    """

    results: Path
    hardware: str
    threads: int | None

    @staticmethod
    def here(results: Path, device: torch.device, threads: int) -> Learned:
        """Return what was learned on this machine's device."""
        return Learned(results, hardware_of(device), None if device.type == "cuda" else threads)

    def ratios(self) -> dict[str, float]:
        """Return the median over the last runs, by protocol; of nothing else, what all tell."""
        found: dict[str, list[float]] = {}
        for line in self._lines():
            if (line["hardware"], line["threads"]) == (self.hardware, self.threads):
                found.setdefault(line["protocol"], []).append(line["measured"] / line["attacks"])
        made = {name: statistics.median(each[-_RUNS:]) for name, each in found.items()}
        return made | ({"": statistics.median(made.values())} if made else {})

    def add(
        self,
        planned: Mapping[str, float],
        attacks: Mapping[str, float],
        measured: Mapping[str, float],
    ) -> None:
        """Keep what the protocols of a run were planned to take and took, in seconds."""
        lines = [
            {"protocol": name, "hardware": self.hardware, "threads": self.threads}
            | {"planned": planned[name], "attacks": attacks[name], "measured": taken}
            for name, taken in measured.items()
        ]
        if lines:
            path = self.results / FILE
            with locked(path):
                append_text(path, "".join(f"{json.dumps(line)}\n" for line in lines))

    def _lines(self) -> list[dict[str, Any]]:
        """Return what can be read; a line that cannot tells nothing."""
        path, found = self.results / FILE, list[dict[str, Any]]()
        for line in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
            try:
                said = json.loads(line)
                float(said["measured"]) / float(said["attacks"])
                found.append({name: said[name] for name in ("hardware", "threads")} | said)
            except (ValueError, KeyError, TypeError, ZeroDivisionError):
                continue
        return found
