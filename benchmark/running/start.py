"""From the words of a command to a run: resolve every name first, then write, then report."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from tabulate import tabulate

from benchmark import records
from benchmark.attestations import Attestations, Standing, name_few
from benchmark.cell import Cell, Worker
from benchmark.contract import Defense
from benchmark.errors import BenchmarkError, DefenseError, PluginError
from benchmark.protocol import load_suite
from benchmark.registry import Kind, Registry, Submission
from benchmark.running.checks import check
from benchmark.running.cost import costs, seconds_of, table
from benchmark.running.inprocess import InProcess
from benchmark.running.jobs import run_jobs
from benchmark.running.local import LocalRunner, Tally
from benchmark.running.plan import Group, Survey, distinct, groups, survey
from benchmark.running.progress import Progress
from benchmark.running.provenance import check_key, provenance, read_key
from benchmark.running.sandbox import Sandbox
from benchmark.running.scores import scores
from benchmark.running.shard import Shard, split
from benchmark.running.smoke import Smoked, failed, smoke
from benchmark.running.smoke import table as outcomes
from benchmark.running.wall import demand_trust
from benchmark.tracks import load_setting
from benchmark.tunings import resolve

INTERRUPTED = 130
"""Exit code of what a person interrupted, as shells have it."""


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
    protocols: Path | None = None
    """A folder of more protocols and suites."""
    shard: Shard | None = None
    """The part of the run that this machine does."""
    jobs: int = 1
    """Processes that share it."""
    job: Shard | None = None
    """The part that this process, one of several, does first."""
    until: float | None = None
    """`time.monotonic` after which no group is begun; those that cost least come first then."""

    trust: bool = False
    """Whether other people's code may run without a wall."""

    def words(self) -> list[str]:
        """Return the command line that a process which shares this order is given."""
        named = {
            "--attack": self.attacks,
            "--defense": self.defenses,
            "--trials": () if self.trials is None else (self.trials,),
            "--seeds": () if self.seeds is None else (",".join(map(str, self.seeds)),),
            "--device": (self.device,),
            "--results": (self.results,),
            "--data": () if self.mirror is None else (self.mirror,),
            "--plugins": self.plugins,
            "--key": () if self.key is None else (self.key,),
            "--protocols": () if self.protocols is None else (self.protocols,),
            "--shard": () if self.shard is None else (self.shard,),
        }
        said = [word for name, each in named.items() for one in each for word in (name, str(one))]
        return ["run", self.suite, *said, *self._flags()]

    def _flags(self) -> list[str]:
        flags = {"--isolate": self.isolate, "--trust-plugins": self.trust}
        return [name for name, wanted in flags.items() if wanted]


def carry_out(order: Order, *, only_plan: bool, verbose: bool = False) -> int:
    """Run an order and print what came of it; before it runs, what it would cost.

    Args:
        order: what to run.
        only_plan: say what is due, and run nothing.
        verbose: say it of every cell and seed.

    Returns:
        The exit code: 2 where a submission failed on every trial it was given, 130 where a person
        interrupted it, else 0.

    Raises:
        BenchmarkError: anything in the order that does not fit; nothing is written then.
    """
    device, key = device_named(order.device), read_key(order.key)
    due = _groups(order)
    if order.shard is not None:
        due = order.shard.of(due, order.results, torch.get_num_threads())
    found = survey(due, order.results)
    check_key(found.records, key, order.results)
    for line in found.damaged:
        print(f"gradleak: {line}", file=sys.stderr)
    left = found.due
    check(dict.fromkeys(cell.protocol for cell, _ in left), order.mirror)
    console = Console(file=sys.stdout, highlight=False)
    cells = sum(len(group.attacks) * len(group.seeds) for group in due)
    trials = sum(len(each) for _, each in left)
    line = f"{order.suite}: {cells} cells, {len(left)} due with {trials} trials"
    say(console, line)
    for line in _doubts(order, due, found):
        say(console, line)
    if only_plan:
        _print_plan(left, verbose=verbose)
    if left:
        cores = torch.get_num_threads()
        cost = costs(left, found.records, order.results, device=device.type, cores=cores)
        print(table(cost), end="\n\n")
    if only_plan:
        return 0
    records.check_writable(order.results)
    if not left:
        say(console, f"nothing is due; next: {_next(order)}")
        return 0
    if order.jobs > 1:
        return _shared(order, due, console)
    with ExitStack() as stack:
        worker_of, due, disabled = _workers(order, due, device, stack)
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
        try:
            tally = runner.run(_own_first(order, due), order.until)
        except KeyboardInterrupt:
            print(
                f"gradleak: interrupted: {runner.tally.records} records are kept in "
                f"{order.results}; the same command goes on from there",
                file=sys.stderr,
            )
            return INTERRUPTED
    if order.job is not None:
        return _report(tally, order, console) or (2 if disabled else 0)
    made = survey(due, order.results).current if tally.records else []
    for line in scores(list(dict.fromkeys(g.protocol for g in due)), made, console.width):
        say(console, line)
    return _report(tally, order, console) or (2 if disabled else 0)


def _own_first(order: Order, due: list[Group]) -> list[Group]:
    """Return the groups in the order of a run.

    Where time is short, from the cheapest; of one process of several, its own part before the rest.
    """
    if order.until is not None:
        taken = seconds_of(due, order.results, torch.get_num_threads())
        ranked = sorted(zip(taken, map(str, due), due, strict=True), key=lambda each: each[:2])
        return [group for _, _, group in ranked]
    if order.job is None:
        return due
    mine = order.job.of(due, order.results, 1)
    return [*mine, *(group for group in due if group not in mine)]


def _shared(order: Order, due: list[Group], console: Console) -> int:
    """Run an order in several processes, and tell the scores of all."""
    split(due, order.jobs, order.results, 1)  # before any process records what moves it
    before = len(survey(due, order.results).current)
    code = run_jobs(order.words(), order.jobs, max(1, torch.get_num_threads() // order.jobs))
    made = survey(due, order.results).current
    for line in scores(list(dict.fromkeys(g.protocol for g in due)), made, console.width):
        say(console, line)
    say(console, f"{len(made) - before} records written to {order.results}")
    say(console, f"next: {_next(order)}")
    return code


def say(console: Console, line: str) -> None:
    """Print a line as it is, however long."""
    console.print(line, markup=False, soft_wrap=True)


def _next(order: Order) -> str:
    """Return the command that makes a board of the records."""
    return f"gradleak leaderboard --results {order.results}"


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
        worker_of, due, disabled = _workers(order, due, device, stack)
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
) -> tuple[Callable[[Submission], Worker], list[Group], list[str]]:
    """Load every submission; what is outside and broken is said, and its cells alone are left out.

    Returns:
        Which worker runs a submission; the groups that are left; why others are not, a line each.

    Raises:
        PluginError: one of the repository's cannot be loaded, or no cell is left.
    """
    worker_of = workers(device, stack, isolate=order.isolate, trust=order.trust)
    broken: dict[tuple[str, str], str] = {}
    for submission in {one.label: one for group in due for one in group.attacks}.values():
        with _disabling(submission, broken):
            worker_of(submission).load(submission)
    for submission in {group.defense.label: group.defense for group in due}.values():
        with _disabling(submission, broken):
            if not order.trust:
                demand_trust(submission)
            _check_defense(submission)
    kept = [
        replace(group, attacks=tuple(one for one in group.attacks if _key(one) not in broken))
        for group in due
        if _key(group.defense) not in broken
    ]
    kept = [group for group in kept if group.attacks]
    if not kept and broken:
        raise PluginError(next(iter(broken.values())))
    for said in broken.values():
        print(f"gradleak: disabled: {said}", file=sys.stderr)
    return worker_of, kept, list(broken.values())


@contextmanager
def _disabling(submission: Submission, broken: dict[tuple[str, str], str]) -> Iterator[None]:
    try:
        yield
    except PluginError as error:
        if not submission.outside:
            raise
        broken[_key(submission)] = str(error)


def _key(submission: Submission) -> tuple[str, str]:
    return submission.manifest.kind, submission.label


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
    for part in load_suite(order.suite, order.protocols):
        defenses = _selected(registry, "defense", order.defenses, part.defenses)
        attacks = _selected(registry, "attack", order.attacks, part.attacks)
        if not order.attacks:
            attacks = [one for one in attacks if one.manifest.name not in part.leave_out]
        for submission in defenses:
            if not submission.outside:  # what is, is loaded where it runs, not by a plan
                _check_defense(submission)
        trials = order.trials or part.trials
        for protocol in part.protocols:
            tuned = resolve(attacks, protocol, order.results)
            made += groups([protocol], defenses, tuned, order.seeds, trials)
    for said in registry.broken.values():
        print(f"gradleak: disabled: {said}", file=sys.stderr)
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
    say(console, f"{tally.records} records written to {order.results}")
    if tally.records:
        say(console, f"next: {_next(order)}")
    never = {name: reason for name, reason in tally.blamed.items() if name not in tally.answered}
    for name, reason in never.items():
        line = f"gradleak: error: {name} failed on every trial it was given: {reason}"
        print(line, file=sys.stderr)
    return 2 if never else 0
