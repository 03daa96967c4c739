"""From the words of a command to a run: say what it would cost, run, report."""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import ExitStack

import torch
from rich.console import Console
from tabulate import tabulate

from benchmark import records
from benchmark.attestations import Attestations, Standing, name_few
from benchmark.cell import Cell
from benchmark.registry import Registry
from benchmark.running.checks import check
from benchmark.running.cost import Prediction, table
from benchmark.running.device import device_named
from benchmark.running.engine import Inline
from benchmark.running.engines import check_engine, engine_of
from benchmark.running.heard import Heard
from benchmark.running.learned import Learned
from benchmark.running.order import Order, groups_of, load
from benchmark.running.plan import Group, Survey, survey
from benchmark.running.progress import Progress
from benchmark.running.provenance import check_key, provenance, read_key
from benchmark.running.runner import Runner, Shows, Tally
from benchmark.running.scores import scores
from benchmark.running.smoke import Smoked, failed, smoke
from benchmark.running.smoke import table as outcomes
from benchmark.tracks import load_setting

INTERRUPTED = 130
"""Exit code of what a person interrupted, as shells have it."""


def carry_out(order: Order, *, only_plan: bool) -> int:
    """Run an order and print what came of it; before it runs, what it would cost.

    Args:
        order: what to run.
        only_plan: say what is due, and run nothing.

    Returns:
        The exit code: 2 where a submission failed on every trial it was given, 130 where a person
        interrupted it, else 0.

    Raises:
        BenchmarkError: anything in the order that does not fit; nothing is written then.
    """
    check_engine(order)
    device, key = device_named(order.device), read_key(order.key)
    due = groups_of(order)
    if order.shard is not None:
        due = order.shard.of(due, order.results, torch.get_num_threads())
    found = survey(due, order.results)
    check_key(found.records, key, order.results)
    for line in found.damaged:
        print(f"gradleak: {line}", file=sys.stderr)
    left = found.due
    check(dict.fromkeys(cell.protocol for cell, _ in left), order.mirror)
    console = Console(file=sys.stdout, highlight=False)
    count = sum(len(group.attacks) * len(group.seeds) for group in due)
    trials = sum(len(each) for _, each in left)
    line = f"{order.suite}: {count} cells, {len(left)} due with {trials} trials"
    say(console, line)
    for line in _doubts(order, due, found):
        say(console, line)
    if only_plan:
        _print_plan(left, verbose=order.verbose)
    cores = max(1, torch.get_num_threads() // max(1, order.jobs))
    learned = Learned.here(order.results, device, cores)

    def predicted() -> Prediction:
        past, ratios = found.records, learned.ratios()
        made = Prediction(left, past, order.results, device.type, cores, ratios)
        if left:
            print(table(made.costs), end="\n\n")
        return made

    if only_plan:
        predicted()
        return 0
    records.check_writable(order.results)
    if not left:
        say(console, f"nothing is due; next: {_next(order)}")
        return 0
    with ExitStack() as stack:
        heard, loaded = Heard(), stack.enter_context(ExitStack())
        worker_of, due, disabled = load(order, due, device, loaded, heard)
        cells = [cell for cell, _ in left]
        engine = engine_of(order, cells, device, key, worker_of, heard, stack)
        cost = predicted()  # while an engine's processes start
        if not isinstance(engine, Inline):
            loaded.close()  # what was only tried here: who makes the cells has children of its own
        progress = stack.enter_context(
            Progress(len(left), trials, console, engine.width, cost.seconds)
        )
        shows: Shows = "failures" if order.traceback else "nothing"
        runner = Runner(order.results, engine, progress, "everything" if order.verbose else shows)
        try:
            tally = runner.run(order.arrange(due) if order.arrange else due, order.until)
        except KeyboardInterrupt:
            print(
                f"gradleak: interrupted: {runner.tally.records} records are kept in "
                f"{order.results}; the same command goes on from there",
                file=sys.stderr,
            )
            return INTERRUPTED
        finally:
            _learn(learned, cost, runner.tally)
    made = survey(due, order.results).current if tally.records else []
    for line in scores(list(dict.fromkeys(g.protocol for g in due)), made, console.width):
        say(console, line)
    return _report(tally, order, console) or (2 if disabled else 0)


def _learn(learned: Learned, cost: Prediction, tally: Tally) -> None:
    """Keep what complete cells took beside what was planned."""
    planned: dict[str, float] = defaultdict(float)
    for cell, ran in tally.made:
        planned[cell.protocol.name] += cost.of(cell, ran)
    learned.add(planned, tally.attacks, tally.seconds)


def say(console: Console, line: str) -> None:
    """Print a line as it is, however long."""
    console.print(line, markup=False, soft_wrap=True)


def _next(order: Order) -> str:
    """Return the command that makes a board of the records."""
    return f"gradleak leaderboard --results {order.public or order.results}"


def try_out(order: Order) -> int:
    """Run one small trial of each cell of an order, print what came of it, and write nothing.

    Returns:
        The exit code: 2 where a cell failed, else 0.

    Raises:
        BenchmarkError: anything in the order that does not fit.
    """
    device, due = device_named(order.device), groups_of(order)
    console = Console(file=sys.stdout, highlight=False)
    cells = sum(len(group.attacks) for group in due)
    made: list[Smoked] = []
    with ExitStack() as stack:
        worker_of, due, disabled = load(order, due, device, stack)
        tried = smoke(
            due,
            load=lambda group: load_setting(group.protocol, order.mirror, device),
            worker_of=worker_of,
            provenance=provenance(device),
        )
        progress = stack.enter_context(Progress(cells, cells, console))
        for one in tried:
            made.append(one)
            progress.advance(one.cell, 1)
            progress.done(one.cell, 1)
    print(outcomes(made))
    return 2 if failed(made) or disabled else 0


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


def _print_plan(left: list[tuple[Cell, list[int]]], *, verbose: bool) -> None:
    """Print the trials due by protocol and attack; if wanted, by defense and seed too."""
    headers = ["protocol", *(["defense"] if verbose else []), "attack"]
    headers += ["seed"] if verbose else []
    totals: Counter[tuple[object, ...]] = Counter()
    for cell, trials in left:
        inner = (cell.defense.label, cell.attack.label, cell.seed)
        totals[cell.protocol.name, *(inner if verbose else inner[1:2])] += len(trials)
    if totals:
        rows = [(*names, count) for names, count in totals.items()]
        print(tabulate(rows, [*headers, "trials due"]), end="\n\n")


def _report(tally: Tally, order: Order, console: Console) -> int:
    for protocol, reason in tally.unavailable.items():
        say(console, f"unavailable: {protocol}: {reason}")
    for name, reasons in tally.failures.items():
        say(console, f"failed: {name}: {len(reasons)} trials: {reasons[0]}")
    for cell, reason in tally.lost.items():
        say(console, f"lost: {cell}: {reason}")
    say(console, f"{tally.records} records written to {order.results}")
    if tally.records:
        say(console, f"next: {_next(order)}")
    never = {name: reason for name, reason in tally.blamed.items() if name not in tally.answered}
    for name, reason in never.items():
        line = f"gradleak: error: {name} failed on every trial it was given: {reason}"
        print(line, file=sys.stderr)
    return 2 if never or tally.lost else 0
