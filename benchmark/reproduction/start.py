"""From the words of `gradleak reproduce` to a page: run what is due, then judge all there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from benchmark.errors import BenchmarkError, DataUnavailable
from benchmark.protocol import load_utility
from benchmark.published import SUITES, Measured, SuiteName, chosen, published
from benchmark.published.judged import judged
from benchmark.records import replace
from benchmark.registry import Registry, exactly
from benchmark.reproduction.due import Cells, Trainings, cells, trainings
from benchmark.reproduction.page import page
from benchmark.reproduction.terminal import told
from benchmark.running.cost import Prediction, table
from benchmark.running.device import device_named
from benchmark.running.learned import Learned
from benchmark.running.order import Order
from benchmark.running.plan import distinct, survey
from benchmark.running.start import carry_out
from benchmark.utility import Order as Training
from benchmark.utility import measure

_WIDTH = 180  # characters of a line that no terminal shows


@dataclass(frozen=True)
class Request:
    """What a user asked for; without names and `everything` nothing is run."""

    results: Path
    output: Path
    names: tuple[str, ...] = ()
    everything: bool = False
    suite: str = "laptop"
    plan: bool = False
    device: str = "auto"
    mirror: Path | None = None
    plugins: tuple[Path, ...] = ()


def reproduce(request: Request) -> int:
    """Run what the named tables lack, print their verdicts, and write the page of all tables.

    Returns:
        The exit code: 2 where a submission failed on every trial it was given, else 0.

    Raises:
        BenchmarkError: no such table or suite, both names and `everything`, or anything that the
            runner refuses.
    """
    suite = _suite(request.suite)
    if request.names and request.everything:
        raise BenchmarkError("--all beside names of tables: wanted one of them")
    names = chosen(list(request.names))
    every = list(published(suite))
    wanted = [number for number in every if request.everything or number.table in names]
    measured = Measured(request.results, Registry(request.plugins))
    runs, learned = cells(wanted, measured), trainings(wanted)
    if request.plan:
        _plan(request, runs, learned, measured)
        return 0
    code = _run(request, runs, learned, measured)
    found = judged(every, Measured(request.results, Registry(request.plugins)))
    shown = [each for each in found if each.one.table in names] if names else found
    console = Console(highlight=False)
    console = console if console.is_terminal else Console(highlight=False, width=_WIDTH)
    for one in told(shown, detailed=bool(names)):
        console.print(one)
    replace(request.output, page(found, suite, request.results, request.output))
    print(f"wrote {request.output}")
    return code


def _suite(name: str) -> SuiteName:
    for suite in SUITES:
        if name == suite:
            return suite
    raise BenchmarkError(f"--suite {name!r}: wanted {' or '.join(SUITES)}")


def _plan(
    request: Request, runs: Sequence[Cells], learned: Sequence[Trainings], measured: Measured
) -> None:
    """Say what is due, and what it would take."""
    device = device_named(request.device)
    due = distinct([group for one in runs for group in one.group(measured)])
    found = survey(due, request.results)
    trials = sum(len(each) for _, each in found.due)
    print(f"{len(runs)} groups of cells, {len(found.due)} cells due with {trials} trials")
    if found.due:
        cores = torch.get_num_threads()
        cost = Prediction(
            found.due,
            found.records,
            request.results,
            device=device.type,
            cores=cores,
            ratios=Learned.here(request.results, device, cores).ratios(),
        )
        print(table(cost.costs), end="\n\n")
    for one in learned:
        for line in measure(_training(request, one)):
            print(line)


def _run(
    request: Request, runs: Sequence[Cells], learned: Sequence[Trainings], measured: Measured
) -> int:
    """Run what is due, and return the exit code."""
    code = 0
    for one in runs:
        if survey(one.group(measured), request.results).due:
            code = max(code, carry_out(_order(request, one), only_plan=False))
    for each in learned:
        try:
            for line in measure(_training(request, each)):
                print(line, flush=True)
        except DataUnavailable as error:
            print(f"unavailable: {each.protocol}: {error}")
    return code


def _order(request: Request, one: Cells) -> Order:
    return Order(
        suite=one.protocol,
        attacks=tuple(exactly(label) for label in one.attacks),
        defenses=(exactly(one.defense),),
        trials=one.trials,
        seeds=one.seeds,
        device=request.device,
        results=request.results,
        mirror=request.mirror,
        plugins=request.plugins,
        isolate=False,
    )


def _training(request: Request, one: Trainings) -> Training:
    return Training(
        load_utility(one.protocol),
        request.results,
        tuple(exactly(label) for label in one.defenses),
        one.seeds,
        request.plugins,
        request.mirror,
        device_named(request.device),
        request.plan,
    )
