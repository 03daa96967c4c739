"""What the harness itself costs: a cell's time outside attack, defense, gradient and scores.

A share of the wall-clock seconds of every cell of quick_digits_b under seed 0, 16 trials each.
"""

import dataclasses
import time

import pytest

from benchmark.cell import Cell, run_cell
from benchmark.federation import DefendedRound, rounds
from benchmark.registry import Registry
from benchmark.running.inprocess import InProcess

TRIALS = 16
HOOKS = ("harden", "server_view", "protect_batch", "compute_update", "protect_update")


class Clock:
    """Adds up the seconds of the functions it is put around; of one within another, once."""

    def __init__(self):
        self.seconds, self._depth = 0.0, 0

    def around(self, work):
        def timed(*args, **named):
            started, self._depth = time.perf_counter(), self._depth + 1
            try:
                return work(*args, **named)
            finally:
                self._depth -= 1
                self.seconds += 0.0 if self._depth else time.perf_counter() - started

        return timed


@pytest.fixture
def work(monkeypatch):
    """A clock of the gradients; defenses and scores are put to it below."""
    clock = Clock()
    monkeypatch.setattr(rounds, "fedsgd", clock.around(rounds.fedsgd))
    return clock


def run_protocol(bench, defenses, attacks, clock):
    """Run every cell of a protocol under a new round; return the whole seconds."""
    setting = dataclasses.replace(bench.setting, scorer=Scored(bench.setting.scorer, clock))
    plain, whole = setting.round(0), 0.0
    for submission in defenses:
        defended = DefendedRound(plain, timed_hooks(submission.build(), clock), submission.label)
        for attack in attacks:
            cell = Cell(bench.protocol, submission, attack, 0)
            started = time.perf_counter()
            made = run_cell(cell, setting, defended, InProcess(), range(TRIALS), bench.provenance)
            records = [record for stack in made for record in stack]
            whole += time.perf_counter() - started
            clock.seconds += sum(record.seconds or 0.0 for record in records)
    return whole


class Scored:
    """A scorer on the clock."""

    def __init__(self, scorer, clock):
        self.score = clock.around(scorer.score)


def timed_hooks(defense, clock):
    """Put what a defense does on the clock, and what the one does that holds its clients' keys."""
    keyed = defense.keyed

    def with_keys(*given):
        held = keyed(*given)
        return held if held is defense else timed_hooks(held, clock)

    for hook in HOOKS:
        object.__setattr__(defense, hook, clock.around(getattr(defense, hook)))
    object.__setattr__(defense, "keyed", clock.around(with_keys))
    return defense


@pytest.mark.benchmark(group="a protocol's cells")
def test_harness_takes_a_share_of_its_cells(benchmark, quick, work):
    bench, registry = quick("quick_digits_b"), Registry()
    made = bench, registry.all("defense"), registry.all("attack")
    run_protocol(*made, Clock())  # libraries load and sources are digested once a run
    work.seconds = 0.0
    whole = benchmark.pedantic(run_protocol, (*made, work), rounds=1)
    benchmark.extra_info["ratio_overhead"] = 1 - work.seconds / whole
    assert 0 < work.seconds < whole
