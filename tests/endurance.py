"""Ends runs at random moments, spoils their surroundings, and counts what became of the records.

    python tests/endurance.py --minutes 20
    python tests/endurance.py --kills 5 --engine local

Each run goes on in the folder of the one before until it is complete, and is then held against a
run that nothing befell: the same records, each once, and the same board. Exit code 1 where one
differs. `--engine jobs` is two processes, `--engine ray` a cluster of two nodes on this machine.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

import benchmark.leaderboard
import benchmark.running.start  # noqa: F401  (before the forks, so that a run begins at once)
from benchmark.cli import main
from benchmark.records import read_folder
from benchmark.registry import Registry

ENGINES = ("local", "jobs", "ray")
PROTOCOL = Path(__file__).with_name("tiny.yaml")
ATTACKS = ("random", "span_closed_form", "april_closed_form", "wrong_update")
DEFENSES = ("none", "gaussian_noise,scale=0.01", "withhold_position")
NODES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
cluster.add_node(num_cpus=1)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""
_SECONDS = 120  # of a run that should end by itself
_GONE = 10  # seconds in which what a run started ends after it


class Trouble:
    """Runs of one engine in folders beneath one, and counts of what befell them."""

    def __init__(self, folder: Path, engine: str, address: str | None, draws: random.Random):
        self.folder, self.engine, self.draws = folder, engine, draws
        self.counts: Counter[str] = Counter()
        self.scratch = folder / "scratch"
        self.scratch.mkdir(parents=True)
        named = [("--attack", a) for a in ATTACKS] + [("--defense", d) for d in DEFENSES]
        more = {"local": [], "jobs": ["--jobs", "2"], "ray": ["--engine", "ray"]}[engine]
        more += ["--address", address] if address else []
        self.words = ["run", str(PROTOCOL), *(word for pair in named for word in pair)]
        assert self.wait(self.start("whole")) == 0  # by one process, whatever the engine
        self.words += more
        began = time.monotonic()
        assert self.wait(self.start("first")) == 0
        self.seconds = time.monotonic() - began
        self.whole, self.number = self.read("whole")[0], 0
        self.page = self.board("whole")
        self.complete("first")

    @property
    def name(self) -> str:
        """The folder that runs go on in."""
        return f"run-{self.number}"

    def start(self, name: str, *more: str, before: Callable[[], object] = lambda: None) -> int:
        """Fork a driver; what it starts has its folder of scratch files in the environment."""
        child = os.fork()
        if child == 0:
            code: Any = 1
            try:
                quiet = os.open(os.devnull, os.O_WRONLY)
                os.dup2(quiet, 1), os.dup2(quiet, 2)
                os.environ["TMPDIR"], tempfile.tempdir = str(self.scratch), None
                before()
                sys.argv = ["gradleak", *self.words, *more, "--results", str(self.folder / name)]
                main()
            except SystemExit as ended:
                code = ended.code
            finally:
                os._exit(code if isinstance(code, int) else 1)
        return child

    def wait(self, child: int) -> int:
        """Return how a driver ended; one that does not is an error."""
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise TimeoutError(f"{self.engine}: a run of {self.seconds:.0f} s took {_SECONDS} s")

    def read(self, name: str) -> tuple[dict[Any, Any], int]:
        """Return the numbers of a folder by trial, and how many stand more than once."""
        folder = self.folder / name
        found = read_folder(folder).records if folder.is_dir() else []
        made = {
            (r.protocol, r.defense, r.attack, r.seed, r.trial): (r.status, r.reason, r.metrics)
            for r in found
        }
        return made, len(found) - len(made)

    def pause(self) -> None:
        """Wait for a random moment of a run."""
        time.sleep(self.draws.uniform(0, self.seconds))

    def settle(self, child: int, held: dict[Any, Any]) -> int:
        """Wait for a driver: what was on disk is there still, and a run that is done is whole."""
        code = self.wait(child)
        now, twice = self.read(self.name)
        self.counts["records lost"] += sum(now.get(key) != said for key, said in held.items())
        self.counts["records doubled"] += twice
        if code == 0:
            self.complete(self.name)
            self.number += 1
        return code

    def complete(self, name: str) -> None:
        """Hold a folder to the run that nothing befell."""
        now, twice = self.read(name)
        self.counts["runs completed"] += 1
        self.counts["records lost"] += sum(now.get(k) != said for k, said in self.whole.items())
        self.counts["records doubled"] += twice + len(now.keys() - self.whole.keys())
        self.counts["boards that differ"] += self.board(name) != self.page

    def board(self, name: str) -> str:
        """Return the board of a folder, less seconds and what stands for the folder's name."""
        page = self.folder / f"{name}.md"
        words = ["leaderboard", "--results", str(self.folder / name), "--output", str(page)]
        child = os.fork()
        if child == 0:
            try:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
                sys.argv = ["gradleak", *words]
                main()
            finally:
                os._exit(0)
        self.wait(child)
        text = page.read_text(encoding="utf-8").replace(name, "NAME")
        return re.sub(r"\[[0-9a-f]{4}\]|\b\d[\d.e-]* m?s\b", "", text)

    def processes(self, *words: str) -> list[int]:
        """Return the processes that drivers started, of those with a word in their command."""
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError, IndexError):
                command = (place / "cmdline").read_text(errors="replace")
                parent = (place / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
                told = command + (place / "environ").read_text(errors="replace")
                if command.startswith("ray::"):  # its title lies over its environment
                    told += Path(f"/proc/{parent}/environ").read_text(errors="replace")
                if str(self.folder) in told and any(word in command for word in words or ("",)):
                    found.append(int(place.name))
        return [pid for pid in found if pid != os.getpid()]


def kill_the_driver(run: Trouble) -> None:
    """SIGKILL at a random moment."""
    held = run.read(run.name)[0]
    child = run.start(run.name)
    run.pause()
    run.counts["drivers killed"] += 1
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    run.counts["drivers killed"] -= run.settle(child, held) == 0  # it was done by then


def kill_a_worker(run: Trouble) -> None:
    """SIGKILL of a process that makes cells; the run goes on."""
    held = run.read(run.name)[0]
    child = run.start(run.name)
    run.pause()
    if there := run.processes("running.pool", "ray::_stacks"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.draws.choice(there), signal.SIGKILL)
            run.counts["workers killed"] += 1
    run.settle(child, held)


def stop(run: Trouble) -> None:
    """SIGTERM or Ctrl-C: what the run started ends, and its scratch files are gone."""
    held = run.read(run.name)[0]
    isolated = ["--isolate"] if run.draws.random() < 0.5 else []
    child = run.start(run.name, *isolated)
    run.pause()
    said = run.draws.choice([signal.SIGTERM, signal.SIGINT])
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, said)
    run.settle(child, held)
    run.counts[f"{said.name} sent"] += 1
    end = time.monotonic() + _GONE
    mine = [] if run.engine != "ray" else run.processes("ray", "raylet", "gcs", "cluster_utils")
    while time.monotonic() < end and (set(run.processes()) - set(mine) or any_in(run.scratch)):
        time.sleep(0.1)
    run.counts["processes left behind"] += len(set(run.processes()) - set(mine))
    run.counts["scratch folders left behind"] += any_in(run.scratch)
    empty(run.scratch)


def fill_the_disk(run: Trouble) -> None:
    """No file may grow beyond a random size: one line, code 2, and nothing torn."""
    held = run.read(run.name)[0]
    most = run.draws.randrange(500, 6000)
    limit = (most, resource.getrlimit(resource.RLIMIT_FSIZE)[1])
    child = run.start(run.name, before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit))
    code = run.settle(child, held)
    run.counts["full disks"] += 1
    run.counts["full disks not told"] += code not in (0, 2)


def forbid_writing(run: Trouble) -> None:
    """Results on a file system that may only be read: code 2, before anything runs."""
    held, folder = run.read(run.name)[0], run.folder / run.name
    folder.mkdir(exist_ok=True)

    def bind() -> None:
        libc = __import__("ctypes").CDLL(None, use_errno=True)
        private, place = (1 << 18) | (1 << 14), str(folder).encode()  # MS_PRIVATE, MS_REC
        once = libc.unshare(0x20000) or libc.mount(b"none", b"/", None, private, None)
        twice = libc.mount(place, place, None, 1 << 12, None)  # MS_BIND
        if once or twice or libc.mount(None, place, None, 1 | 1 << 5 | 1 << 12, None):
            os._exit(77)

    code = run.settle(run.start(run.name, before=bind), held)
    run.counts["read-only results" if code != 77 else "read-only results not tried"] += 1
    run.counts["read-only results not told"] += code not in (0, 2, 77)


def run_two(run: Trouble) -> None:
    """Two drivers on one folder, one of which is killed."""
    held = run.read(run.name)[0]
    one, other = run.start(run.name), run.start(run.name)
    run.pause()
    with contextlib.suppress(ProcessLookupError):
        os.kill(one, signal.SIGKILL)
    run.counts["drivers killed"] += run.wait(one) != 0
    run.counts["two drivers at once"] += 1
    run.settle(other, held)


def turn_the_clock_back(run: Trouble) -> None:
    """The wall clock goes back by up to a day whenever it is asked."""
    held, draws = run.read(run.name)[0], random.Random(run.draws.random())

    def fake() -> None:
        told = time.time
        time.time = lambda: told() - draws.uniform(0, 86400)

    child = run.start(run.name, before=fake)
    run.pause()
    with contextlib.suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)
    run.counts["drivers killed"] += run.settle(child, held) != 0
    run.counts["clocks turned back"] += 1


def any_in(folder: Path) -> bool:
    """Tell whether a run left a folder of its own here."""
    return any(folder.glob("gradleak-*"))


def empty(folder: Path) -> None:
    """Remove what is in a folder."""
    for each in folder.iterdir():
        shutil.rmtree(each, ignore_errors=True)


@contextlib.contextmanager
def nodes(engine: str, scratch: Path) -> Iterator[str | None]:
    """Give the address of a cluster of two nodes, where one is wanted."""
    if engine != "ray":
        yield None
        return
    environment = os.environ | {"RAY_worker_niceness": "0", "ENDURANCE": str(scratch)}
    with subprocess.Popen(
        [sys.executable, "-c", NODES],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as holder:
        assert holder.stdout
        yield holder.stdout.readline().strip()
        holder.communicate()


def endure(engine: str, seconds: float, kills: int | None, seed: int) -> Counter[str]:
    """Give an engine trouble for a time, or for so many kills, and return what came of it."""
    troubles: Sequence[Callable[[Trouble], None]] = [
        *[kill_the_driver] * 6,
        *([kill_a_worker] * 6 if engine != "local" else []),
        *(stop, fill_the_disk, forbid_writing, run_two, turn_the_clock_back),
    ]
    for one in Registry().select("attack", ATTACKS):
        one.build()  # imported before the forks, too
    with tempfile.TemporaryDirectory(prefix="endurance-") as folder:
        place = Path(folder)
        with nodes(engine, place / engine) as address:
            run = Trouble(place / engine, engine, address, random.Random(seed))
            end = time.monotonic() + seconds
            killed = 0
            while killed < kills if kills is not None else time.monotonic() < end:
                run.draws.choice(troubles)(run)
                killed = run.counts["drivers killed"] + run.counts["workers killed"]
            run.settle(run.start(run.name), run.read(run.name)[0])
            return run.counts


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--kills", type=int, help="in place of a time")
    parser.add_argument("--engine", choices=ENGINES, action="append")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    chosen = asked.engine or ENGINES
    bad = 0
    for one in chosen:
        found = endure(one, 60 * asked.minutes / len(chosen), asked.kills, asked.seed)
        print(one, *(f"{name}: {count}" for name, count in sorted(found.items())), sep="\n  ")
        wrong = ("lost", "doubled", "differ", "left behind", "not told")
        bad += sum(count for name, count in found.items() if name.endswith(wrong))
    sys.exit(1 if bad else 0)
