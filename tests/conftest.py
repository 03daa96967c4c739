import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmark.cell import Cell, Setting, run_cell
from benchmark.cli import main
from benchmark.federation import DefendedRound
from benchmark.protocol import load_protocol
from benchmark.records import Provenance, read_folder
from benchmark.registry import Registry
from benchmark.running.inprocess import InProcess

TINY = {
    "name": "tiny",
    "version": 1,
    "title": "Tiny",
    "description": "A cell in milliseconds.",
    "data": {"name": "digits", "size": 8},
    "victim": {"architecture": "april_b", "width": 32, "depth": 1, "patch": 4},
    "trials": 3,
    "seeds": [0],
    "budget": {"seconds": 5, "memory_mib": 256},
    "metrics": ["psnr", "mse"],
}

PLUGIN = """
import os, signal, sys, time
from dataclasses import dataclass
import torch
from benchmark.api import Attack, Reconstruction
CALLS = []

def grey(seen):
    side = seen.model.spec.size
    return Reconstruction(torch.full((seen.batch_size, 1, side, side), 0.5))

@dataclass(frozen=True)
class Plugin(Attack):
    level: float = 0.5

    def reconstruct(self, seen):
        CALLS.append(1)
        {body}
"""


@dataclass(frozen=True)
class Ended:
    """What a command came to."""

    code: int
    out: str
    err: str


@pytest.fixture
def tiny(tmp_path) -> Callable[..., Path]:
    """Write the tiny protocol, with changes, and return its file."""

    def write(name: str = "tiny", **changes: Any) -> Path:
        path = tmp_path / f"{name}.yaml"
        content = {**TINY, "name": name, **changes}
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return path

    return write


@pytest.fixture
def plugin(tmp_path) -> Callable[..., Path]:
    """Write an attack with this body (or this whole source) and return the folder of them all."""

    def write(name: str, body: str = "", source: str | None = None, **manifest: Any) -> Path:
        folder = tmp_path / "plugins" / name
        folder.mkdir(parents=True, exist_ok=True)
        said = {"name": name, "kind": "attack", "entry": "attack:Plugin", "title": name}
        (folder / "submission.yaml").write_text(yaml.safe_dump(said | manifest), encoding="utf-8")
        text = PLUGIN.format(body=body.replace("\n", "\n        ")) if source is None else source
        (folder / "attack.py").write_text(text, encoding="utf-8")
        return folder.parent

    return write


@pytest.fixture
def gradleak(monkeypatch, capsys) -> Callable[..., Ended]:
    """Run the command line in this process."""

    def run(*words: object) -> Ended:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["gradleak", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        return Ended(int(ended.value.code or 0), said.out, said.err)

    return run


@pytest.fixture
def numbers() -> Callable[..., dict]:
    """Return what must not depend on when and where a run was made, by trial, each once."""

    def read(results: Path, *attacks: str) -> dict:
        reading = read_folder(results)
        assert not reading.damaged
        chosen = [r for r in reading.records if not attacks or r.attack in attacks]
        found = {
            (r.protocol, r.defense, r.attack, r.seed, r.trial): (r.status, r.reason, r.metrics)
            for r in chosen
        }
        assert len(found) == len(chosen)
        return found

    return read


@pytest.fixture
def provenance() -> Provenance:
    return Provenance(commit=None, dirty=None, versions={}, hardware="a processor")


class Bench:
    """Runs single cells of one protocol without a command line."""

    def __init__(self, path: Path, plugins: Path | None, provenance: Provenance) -> None:
        import torch

        self.protocol = load_protocol(str(path))
        self.registry = Registry([plugins] if plugins else [])
        self.setting = Setting.load(self.protocol, None, torch.device("cpu"))
        self.round = self.setting.round(self.protocol.seeds[0])
        self.provenance = provenance

    def cell(self, attack: str, defense: str = "none") -> Cell:
        (a,), (d,) = self.registry.find("attack", attack), self.registry.find("defense", defense)[:1]
        return Cell(self.protocol, d, a, self.protocol.seeds[0])

    def defended(self, cell: Cell) -> DefendedRound:
        return DefendedRound(self.round, cell.defense.build(), cell.defense.label)

    def run(self, attack, defense="none", worker=None, trials=None):
        """Return a cell's records, all stacks together."""
        cell = self.cell(attack, defense)
        due = range(self.protocol.trials if trials is None else trials)
        made = run_cell(
            cell, self.setting, self.defended(cell), worker or InProcess(), due, self.provenance
        )
        return [record for stack in made for record in stack]


@pytest.fixture
def bench(tiny, provenance) -> Callable[..., Bench]:
    """Make a bench of the tiny protocol, with changes, and a folder of plugins."""

    def make(plugins: Path | None = None, **changes: Any) -> Bench:
        return Bench(tiny(**changes), plugins, provenance)

    return make
