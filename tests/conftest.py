import gc
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import settings

from benchmark.cell import Cell, run_cell
from benchmark.cli import main
from benchmark.federation import DefendedRound
from benchmark.protocol import load_protocol
from benchmark.records import Provenance, read_folder
from benchmark.registry import Registry
from benchmark.running.inprocess import InProcess
from benchmark.seeds import PUBLIC, Key, generator
from benchmark.tracks import load_setting
from benchmark.victims import ImageSpec, ImageVictim, build
from benchmark.worker import Outcome

# no deadline: the first call of a decomposition loads libraries
settings.register_profile("steady", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("steady")

gc.disable()  # until all is imported and collected: a tenth of the whole run

# workers of xdist inherit it: two of two threads each on two cores spend their time waiting
os.environ.setdefault("OMP_NUM_THREADS", "1")

TINY = yaml.safe_load(Path(__file__).with_name("tiny.yaml").read_text(encoding="utf-8"))

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


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Keep benchmarks in this process: pytest-benchmark times nothing under xdist."""
    if config.getoption("benchmark_only"):
        config.option.numprocesses, config.option.dist = 0, "no"


def pytest_collection_finish() -> None:
    """Collect garbage again, but look no more through what stays until the end."""
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    gc.unfreeze()  # else libraries tell of what they think has leaked


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many cases there were, and how many were contained."""

    def cases(word: str) -> int:
        found = terminalreporter.stats.get(word, [])
        return sum("hostile/" in each.nodeid and "[" in each.nodeid for each in found)

    held, broke, skipped = cases("passed"), cases("failed") + cases("error"), cases("skipped")
    if held + broke + skipped:
        line = f"hostile: {held + broke} cases, {held} contained, {skipped} skipped"
        terminalreporter.write_line(line)


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

    def write(name: str, /, body: str = "", source: str | None = None, **manifest: Any) -> Path:
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


@pytest.fixture(scope="session")
def provenance() -> Provenance:
    return Provenance(commit=None, dirty=None, versions={}, hardware="a processor")


class Bench:
    """Runs single cells of one protocol without a command line."""

    def __init__(self, path: Path, plugins: Path | None, provenance: Provenance) -> None:
        self.protocol = load_protocol(str(path))
        self.registry = Registry([plugins] if plugins else [])
        self.setting = load_setting(self.protocol, None, torch.device("cpu"))
        self.round = self.setting.round(self.protocol.seeds[0])
        self.provenance = provenance

    def cell(self, attack: str, defense: str = "none") -> Cell:
        (a,), (d,) = (
            self.registry.find("attack", attack)[:1],
            self.registry.find("defense", defense)[:1],
        )
        return Cell(self.protocol, d, a, self.protocol.seeds[0])

    def defended(self, cell: Cell, key: Key = PUBLIC) -> DefendedRound:
        return DefendedRound(self.round, cell.defense.build(), cell.defense.label, key)

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


@pytest.fixture(scope="session")
def quick(provenance) -> Callable[[str], Bench]:
    """Make a bench of a protocol of the repository, once a process."""
    return cache(lambda name: Bench(name, None, provenance))


class Keeper(InProcess):
    """A worker that keeps what an attack would see, and answers nothing."""

    stack = None

    def reconstruct(self, submission, stack):
        self.stack = stack
        return [Outcome(None, "failed", "kept", 0.0, None)] * len(stack)


@pytest.fixture(scope="session")
def seen_by() -> Callable[..., Any]:
    """Return what an attack sees of a cell; None where it is not applicable."""

    def see(bench: Bench, attack: str, defense: str = "none", trials: int = 2) -> Any:
        keeper = Keeper()
        bench.run(attack, defense, keeper, trials)
        return keeper.stack

    return see


@pytest.fixture(scope="session")
def make_victim() -> Callable[..., ImageVictim]:
    """Make a victim, april_b on grey images of 28 px where nothing else is said."""

    def make(architecture="april_b", *, seed=0, channels=1, size=28, classes=10, **settings):
        spec = ImageSpec(
            architecture=architecture,
            channels=channels,
            size=size,
            classes=classes,
            mean=(0.4,) * channels,
            std=(0.25,) * channels,
            **settings,
        )
        return build(spec, generator(seed, "victim"))

    return make


@pytest.fixture
def secret() -> np.random.Generator:
    """Return what a client draws from in secret, the same for every test."""
    return PUBLIC.draws("test")


@pytest.fixture
def draw() -> torch.Generator:
    """Return a generator, the same for every test."""
    return torch.Generator().manual_seed(0)
