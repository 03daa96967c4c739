"""A cell whose attack does, in each trial, what a file tells it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
import yaml

from benchmark.identity import ROOT
from benchmark.records import Record
from benchmark.running import sandbox as module
from benchmark.running.sandbox import Sandbox
from benchmark.running.wall import trouble
from tests.conftest import TINY, Bench

SECONDS = 1
"""Of a case that never ends; others have as long as a busy machine needs."""
HOSTILE = """
import ctypes, gc, glob, hashlib, itertools, json, mmap, os, re, resource, signal, socket, struct
import subprocess, sys, time
from dataclasses import dataclass
from pathlib import Path
import torch
from benchmark.api import Attack, Reconstruction

class NothingFound(Exception): pass

def grey(seen):
    side = seen.model.spec.size
    return Reconstruction(torch.full((seen.batch_size, 1, side, side), 0.5))

@dataclass(frozen=True)
class Plugin(Attack):
    def reconstruct(self, seen):
        source = Path(__file__).with_name("case.txt").read_text(encoding="utf-8")
        lines = "".join("    " + line + "\\n" for line in source.splitlines())
        space = dict(globals())
        exec("def case(seen):\\n" + lines, space)
        return space["case"](seen)
"""
HONEST = """
from dataclasses import dataclass
import torch
from benchmark.api import Attack, Reconstruction

@dataclass(frozen=True)
class Plugin(Attack):
    def reconstruct(self, seen):
        side = seen.model.spec.size
        level = seen.update["head.bias"].sigmoid().mean().item()
        return Reconstruction(torch.full((seen.batch_size, 1, side, side), level))
"""
PIPE = """
def say(data):
    import benchmark.running.child as child
    for frame in sys._current_frames().values():
        while frame and not hasattr(frame.f_locals.get("answers"), "fileno"):
            frame = frame.f_back
        if frame:
            return os.write(frame.f_locals["answers"].fileno(), data)
"""


@dataclass
class Stage:
    """Runs one case in a trial of its own, and an honest attack after it."""

    bench: Bench
    brief: Bench
    plugins: Path
    sandbox: Sandbox
    places: dict[str, object]

    def play(self, case: str, *, brief: bool = False) -> Record:
        """Return the record of a case; a brief one meets a process that has begun."""
        bench = self.brief if brief else self.bench
        if brief:
            self.play("return grey(seen)")
        text = (PIPE if "say(" in case else "") + case
        for name, value in self.places.items():
            text = text.replace(f"<{name}>", str(value))
        (self.plugins / "hostile" / "case.txt").write_text(text, encoding="utf-8")
        (record,) = bench.run("hostile", worker=self.sandbox, trials=1)
        return record

    def honest(self) -> dict[str, float | None]:
        """Return the numbers of an honest attack behind the wall."""
        (record,) = self.bench.run("honest", worker=self.sandbox, trials=1)
        assert record.reason is None
        return record.metrics


@pytest.fixture(scope="session")
def _wall() -> None:
    if said := trouble():
        pytest.skip(said)


@pytest.fixture(scope="module")
def stage(_wall, tmp_path_factory, provenance) -> Stage:
    """A sandbox, kept for all cases of a file: what a case breaks is made anew for the next."""
    home = tmp_path_factory.mktemp("hostile")
    for name, source in {"hostile": HOSTILE, "honest": HONEST}.items():
        folder = home / "plugins" / name
        folder.mkdir(parents=True)
        said = {"name": name, "kind": "attack", "entry": "attack:Plugin", "title": name}
        (folder / "submission.yaml").write_text(yaml.safe_dump(said))
        (folder / "attack.py").write_text(source)
    benches = []
    for name, seconds in (("tiny", 60), ("brief", SECONDS)):
        said = {**TINY, "name": name, "budget": {"seconds": seconds, "memory_mib": 256}}
        (home / f"{name}.yaml").write_text(yaml.safe_dump(said, sort_keys=False))
        benches.append(Bench(home / f"{name}.yaml", home / "plugins", provenance))
    bench, brief = benches
    truth = bench.round.truths[0].images.contiguous().numpy().tobytes()
    mirror = home / "mirror"
    mirror.mkdir()
    (mirror / "data").write_text("a data set")
    places = {
        "root": ROOT,
        "mirror": mirror,
        "plugins": home / "plugins",
        "home": Path.home(),
        "truth": hashlib.sha256(truth).hexdigest(),
        "bytes": truth[64:128].hex(),
        "size": len(truth),
    }
    with Sandbox(torch.device("cpu")) as sandbox:
        yield Stage(bench, brief, home / "plugins", sandbox, places)


@pytest.fixture
def quickly(monkeypatch) -> None:
    """Kill a second after the limit."""
    monkeypatch.setattr(module, "_GRACE_SECONDS", 1.0)


@pytest.fixture(scope="module")
def before(stage: Stage) -> dict[str, float | None]:
    """The numbers of an honest attack before anyone was hostile: inside the wall as outside."""
    inside = stage.honest()
    assert inside == stage.bench.run("honest", trials=1)[0].metrics
    return inside
