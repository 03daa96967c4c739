"""From the words of a command to a run: resolve every name first, then write, then report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from tabulate import tabulate

from benchmark import records
from benchmark.attestations import Attestations, Standing, name_few
from benchmark.cell import Cell, Worker
from benchmark.contract import Defense
from benchmark.errors import BenchmarkError, DefenseError
from benchmark.protocol import load_suite
from benchmark.registry import Kind, Registry, Submission
from benchmark.running.cost import costs, table
from benchmark.running.inprocess import InProcess
from benchmark.running.local import LocalRunner, Tally
from benchmark.running.plan import Group, Survey, distinct, groups, survey
from benchmark.running.progress import Progress
from benchmark.running.provenance import check_key, provenance, read_key
from benchmark.running.sandbox import Sandbox
from benchmark.running.smoke import Smoked, failed, smoke
from benchmark.running.smoke import table as outcomes
from benchmark.running.wall import demand_trust
from benchmark.tracks import load_setting
from benchmark.tunings import resolve


@dataclass(frozen=True)
class Order:
    """What a user asked to run; empty attacks or defenses are those of the suite."""

    suite: str
    attacks: tuple[str, ...]
    defenses: tuple[str, ...]
    trials: int | None
    seeds: tuple[int, ...] | None
    device: str
    results: Path
    mirror: Path | None
    plugins: tuple[Path, ...]
    isolate: bool
    key: Path | None = None
    trust: bool = False


def carry_out(order: Order, *, only_plan: bool) -> int:
    """Run an order and print what came of it; before it runs, what it would cost.

    Returns:
        The exit code: 2 where a submission failed on every trial it was given, else 0.

    Raises:
        BenchmarkError: anything in the order that does not fit; nothing is written then.
    """
    device, key = device_named(order.device), read_key(order.key)
    due = _groups(order)
    found = survey(due, order.results)
    check_key(found.records, key, order.results)
    for line in found.damaged:
        print(f"gradleak: {line}", file=sys.stderr)
    left = found.due
    console = Console(file=sys.stdout, highlight=False)
    cells = sum(len(group.attacks) * len(group.seeds) for group in due)
    trials = sum(len(each) for _, each in left)
    line = f"{order.suite}: {cells} cells, {len(left)} due with {trials} trials"
    console.print(line, markup=False, soft_wrap=True)
    for line in _doubts(order, due, found):
        console.print(line, markup=False, soft_wrap=True)
    if only_plan:
        _print_plan(left)
    if left:
        cores = torch.get_num_threads()
        cost = costs(left, found.records, order.results, device=device.type, cores=cores)
        print(table(cost), end="\n\n")
    if only_plan:
        return 0
    records.check_writable(order.results)
    if not left:
        return 0
    with ExitStack() as stack:
        worker_of = _workers(order, due, device, stack)
        progress = stack.enter_context(Progress(len(left), trials, console))
        runner = LocalRunner(
            order.results,
            worker_of=worker_of,
            provenance=provenance(device, key),
            device=device,
            mirror=order.mirror,
            progress=progress,
            key=key,
        )
        tally = runner.run(due)
    return _report(tally, order, console)


def try_out(order: Order) -> int:
    """Run one small trial of each cell of an order, print what came of it, and write nothing.

    Returns:
        The exit code: 2 where a cell failed, else 0.

    Raises:
        BenchmarkError: anything in the order that does not fit.
    """
    device, due = device_named(order.device), _groups(order)
    console = Console(file=sys.stdout, highlight=False)
    cells = sum(len(group.attacks) for group in due)
    made: list[Smoked] = []
    with ExitStack() as stack:
        tried = smoke(
            due,
            load=lambda group: load_setting(group.protocol, order.mirror, device),
            worker_of=_workers(order, due, device, stack),
            provenance=provenance(device),
        )
        progress = stack.enter_context(Progress(cells, cells, console))
        for one in tried:
            made.append(one)
            progress.advance(one.cell, 1)
            progress.done(one.cell, 1)
    print(outcomes(made))
    return 2 if failed(made) else 0


def device_named(name: str) -> torch.device:
    """Return the device a user named.

    Raises:
        BenchmarkError: no such device here.
    """
    if name not in ("auto", "cpu", "cuda"):
        raise BenchmarkError(f"--device {name!r}: wanted auto, cpu or cuda")
    if name == "cuda" and not torch.cuda.is_available():
        raise BenchmarkError("--device cuda: no CUDA device here; wanted auto or cpu")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def _workers(
    order: Order, due: list[Group], device: torch.device, stack: ExitStack
) -> Callable[[Submission], Worker]:
    """Return which worker runs a submission; a PluginError where one cannot be loaded."""
    worker_of = workers(device, stack, isolate=order.isolate, trust=order.trust)
    for submission in {one.label: one for group in due for one in group.attacks}.values():
        worker_of(submission).load(submission)
    return worker_of


def workers(
    device: torch.device, stack: ExitStack, *, isolate: bool = False, trust: bool = False
) -> Callable[[Submission], Worker]:
    """Return which worker runs a submission: a child what is foreign, or all where isolated.

    Args:
        device: where victims live.
        stack: ends the children.
        isolate: whether the repository's own run in children too.
        trust: whether what is foreign may run without a wall.
    """
    inside, sandbox = InProcess(), stack.enter_context(Sandbox(device, trust=trust))
    return lambda submission: sandbox if isolate or submission.outside else inside


def _groups(order: Order) -> list[Group]:
    registry, made = Registry(order.plugins), []
    for part in load_suite(order.suite):
        defenses = _selected(registry, "defense", order.defenses, part.defenses)
        attacks = _selected(registry, "attack", order.attacks, part.attacks)
        if not order.attacks:
            attacks = [one for one in attacks if one.manifest.name not in part.leave_out]
        for submission in defenses:
            if not order.trust:
                demand_trust(submission)
            _check_defense(submission)
        trials = order.trials or part.trials
        for protocol in part.protocols:
            tuned = resolve(attacks, protocol, order.results)
            made += groups([protocol], defenses, tuned, order.seeds, trials)
    return distinct(made)  # two suites of one may name the same cell


def _selected(
    registry: Registry, kind: Kind, asked: Sequence[str], choice: Sequence[str]
) -> list[Submission]:
    """Return what is asked for, else what a suite chooses and whatever plugins there are."""
    if asked or not choice:
        return registry.select(kind, asked)
    chosen = registry.select(kind, choice)
    return [*chosen, *(s for s in registry.all(kind) if s.outside and s not in chosen)]


def _check_defense(submission: Submission) -> None:
    """End the run before it begins where a defense cannot be loaded or described.

    Raises:
        PluginError: why, in one line.
    """
    defense: Defense = submission.build()
    try:
        defense.describe()
    except (Exception, SystemExit) as error:
        said = " ".join([f"{type(error).__name__}:", *str(error).splitlines()[:1]])
        raise DefenseError(f"defense {submission.label}: describe: {said}") from error


def _doubts(order: Order, due: list[Group], found: Survey) -> Iterator[str]:
    """Tell which records are of other versions, and which stand on a source that has moved."""
    protocols = {group.protocol for group in due}
    standing = Standing(Attestations(order.results), Registry(order.plugins), protocols)
    if found.outdated:
        yield standing.tell_outdated(found.outdated)
    if unsure := standing.unverified(found.current):
        moved = (p for r in unsure for p in standing.moved(r.attack, r.defense, r.identity))
        yield (
            f"{len(unsure)} of {len(found.current)} records unverified: the source of "
            f"{name_few(moved)} has moved at the same version; gradleak verify --changed tells "
            "whether an answer did"
        )


def _print_plan(left: list[tuple[Cell, list[int]]]) -> None:
    rows = [
        (cell.protocol.name, cell.defense.label, cell.attack.label, cell.seed, len(trials))
        for cell, trials in left
    ]
    if rows:
        print(tabulate(rows, ["protocol", "defense", "attack", "seed", "trials due"]), end="\n\n")


def _report(tally: Tally, order: Order, console: Console) -> int:
    def say(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    for protocol, reason in tally.unavailable.items():
        say(f"unavailable: {protocol}: {reason}")
    for name, reasons in tally.failures.items():
        say(f"failed: {name}: {len(reasons)} trials: {reasons[0]}")
    say(f"{tally.records} records written to {order.results}")
    if tally.records:
        say(f"next: gradleak leaderboard --results {order.results}")
    never = {name: reason for name, reason in tally.blamed.items() if name not in tally.answered}
    for name, reason in never.items():
        line = f"gradleak: error: {name} failed on every trial it was given: {reason}"
        print(line, file=sys.stderr)
    return 2 if never else 0
