"""What the wall costs outside code, beyond what the same code takes inside.

A process is started and loads its submission; the import of torch alone stands beside it. Then it
meets cells of quick_digits_b, of 16 trials and a victim of 27 MiB each, under one seed after the
other: of a defense the updates alone are timed, of an attack the whole cell. Medians of five: by
the clock, and by the processor of all its processes, which others that are busy change less.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmark.cell import Cell, run_cell
from benchmark.federation import DefendedRound
from benchmark.registry import Registry
from benchmark.running.defending import Defending
from benchmark.running.inprocess import InProcess
from benchmark.running.sandbox import Sandbox
from benchmark.running.wall import trouble

TRIALS, TIMES, SECONDS = 16, 5, 1.0
CPU = torch.device("cpu")
HALVES = """
from dataclasses import dataclass
from benchmark.api import Defense, Update

@dataclass(frozen=True)
class Plugin(Defense):
    def protect_update(self, update, model, draws):
        return Update({name: tensor / 2 for name, tensor in update.items()})
"""


def took(work, *given):
    """Return the seconds of a work, by the clock and by the processor."""
    began = time.perf_counter(), processor()
    work(*given)
    return time.perf_counter() - began[0], processor() - began[1]


def processor():
    """Return the seconds of processor that this process and its living descendants have had."""
    parents, ticks = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        pid = int(path.parent.name)
        parents[pid], ticks[pid] = int(words[1]), int(words[11]) + int(words[12])
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    theirs = sum(ticks.get(pid, 0) for pid in own - {os.getpid()})
    return time.process_time() + theirs / os.sysconf("SC_CLK_TCK")


def middle(pairs):
    """Return the medians by the clock and by the processor."""
    return tuple(statistics.median(each) for each in zip(*pairs, strict=True))


def import_torch():
    subprocess.run([sys.executable, "-c", "import torch"], check=True)


@pytest.fixture
def theirs(plugin):
    """Return an outside attack and an outside defense."""
    plugin("grey", "return grey(seen)")
    registry = Registry([plugin("halves", source=HALVES, kind="defense")])
    return registry.find("attack", "grey")[0], registry.find("defense", "halves")[0]


@pytest.mark.skipif(trouble() is not None, reason="no wall here")
@pytest.mark.benchmark(group="behind the wall")
@pytest.mark.parametrize("kind", ["attack", "defense"])
def test_wall_costs_less_than_a_second_a_cell(benchmark, quick, theirs, kind):
    bench, (attack, defense) = quick("quick_digits_b"), theirs
    (none,) = Registry().find("defense", "none")

    def start():
        with Sandbox(CPU) as sandbox, Defending(CPU) as defending:
            sandbox.load(attack) if kind == "attack" else defending.guard(defense).build()

    def updates(plain, behind):
        defended = DefendedRound(plain, behind, "halves")
        for trial in range(TRIALS):
            defended.update(trial)

    def cell(plain, worker):
        made = Cell(bench.protocol, none, attack, plain.seed)
        defended = DefendedRound(plain, none.build(), "none")
        stacks = run_cell(made, bench.setting, defended, worker, range(TRIALS), bench.provenance)
        assert {record.status for stack in stacks for record in stack} == {"completed"}

    def measure():
        cost = {
            "seconds_a_process": middle(took(start) for _ in range(TIMES))[0],
            "of_import_torch": middle(took(import_torch) for _ in range(TIMES))[0],
        }
        with Sandbox(CPU) as sandbox, Defending(CPU) as defending:
            sandbox.load(attack)
            within, beyond = InProcess(), sandbox
            if kind == "defense":
                within, beyond = defense.build(), defending.guard(defense).build()
            rounds = [bench.setting.round(seed) for seed in range(TIMES)]
            for plain in rounds:
                for trial in range(TRIALS):
                    plain.update(trial)  # the client's own, which the first of the two would make
            work = cell if kind == "attack" else updates
            inside = [took(work, plain, within) for plain in rounds]
            outside = [took(work, plain, beyond) for plain in rounds]
        (clock, spent), (more_clock, more_spent) = middle(inside), middle(outside)
        cost["seconds_a_cell_inside"] = clock
        cost["seconds_more_outside"] = more_clock - clock
        cost["processor_seconds_more_outside"] = more_spent - spent
        return cost

    benchmark.extra_info |= benchmark.pedantic(measure, rounds=1)
    assert benchmark.extra_info["seconds_more_outside"] < SECONDS
