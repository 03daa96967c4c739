"""What a user asked to run: every name resolved, every submission loaded, before anything runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from benchmark.contract import Defense
from benchmark.errors import DefenseError, PluginError
from benchmark.manifest import Kind
from benchmark.protocol import load_suite
from benchmark.registry import Registry, Submission
from benchmark.running.defending import Defending
from benchmark.running.heard import Heard
from benchmark.running.inprocess import InProcess
from benchmark.running.plan import Group, distinct, groups
from benchmark.running.sandbox import Sandbox
from benchmark.running.shard import Shard
from benchmark.tunings import resolve
from benchmark.worker import Worker


@dataclass(frozen=True)
class Order:
    """What a user asked to run; empty attacks or defenses are those of the suite."""

    suite: str
    results: Path
    attacks: tuple[str, ...] = ()
    defenses: tuple[str, ...] = ()
    trials: int | None = None
    seeds: tuple[int, ...] | None = None
    device: str = "auto"
    mirror: Path | None = None
    plugins: tuple[Path, ...] = ()
    isolate: bool = False
    key: Path | None = None
    protocols: Path | None = None
    """A folder of more protocols and suites."""
    shard: Shard | None = None
    """The part of the run that this machine does."""
    jobs: int = 1
    """Processes of a machine that share it; 0 are as many as it has room for."""
    engine: str = "local"
    address: str | None = None
    """Of a cluster."""
    per_gpu: int = 0
    """Processes that share a GPU."""
    until: float | None = None
    """`time.monotonic` after which no group is begun."""
    arrange: Callable[[list[Group]], list[Group]] | None = None
    """Puts groups in the order of a run; else they are in the suite's."""
    trust: bool = False
    """Whether other people's code may run without a wall."""
    public: Path | None = None
    """The records that a verified run is held against; its own are of canaries. Else None."""
    verbose: bool = False
    """Whether to show what submissions print; of a plan, every defense and seed."""
    traceback: bool = False
    """Whether to show it of cells with a trial that failed."""


def load(
    order: Order,
    due: list[Group],
    device: torch.device,
    stack: ExitStack,
    heard: Heard | None = None,
) -> tuple[Callable[[Submission], Worker], list[Group], list[str]]:
    """Load every submission; what is outside and broken is said, and its cells alone are left out.

    Returns:
        Which worker runs a submission; the groups that are left; why others are not, a line each.

    Raises:
        PluginError: one of the repository's cannot be loaded, or no cell is left.
    """
    worker_of = workers(device, stack, isolate=order.isolate, trust=order.trust, heard=heard)
    defending = stack.enter_context(Defending(device, heard))
    broken: dict[tuple[str, str], str] = {}
    defenses: dict[str, Submission] = {}
    for submission in {one.label: one for group in due for one in group.attacks}.values():
        with _disabling(submission, broken):
            worker_of(submission).load(submission)
    for submission in {group.defense.label: group.defense for group in due}.values():
        with _disabling(submission, broken):
            guarded = submission if order.trust else defending.guard(submission)
            _check_defense(guarded)
            defenses[submission.label] = guarded
    kept = [
        replace(
            group,
            defense=defenses[group.defense.label],
            attacks=tuple(one for one in group.attacks if _key(one) not in broken),
        )
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
    device: torch.device,
    stack: ExitStack,
    *,
    isolate: bool = False,
    trust: bool = False,
    heard: Heard | None = None,
) -> Callable[[Submission], Worker]:
    """Return which worker runs a submission: a child what is foreign, or all where isolated.

    Args:
        device: where victims live.
        stack: ends the children.
        isolate: whether the repository's own run in children too.
        trust: whether what is foreign may run without a wall.
        heard: takes what they print, and what their failures raised in full.
    """
    inside = InProcess(tells=heard is not None)
    sandbox = stack.enter_context(Sandbox(device, trust=trust, heard=heard))
    return lambda submission: sandbox if isolate or submission.outside else inside


def groups_of(order: Order) -> list[Group]:
    """Return all the groups of an order, each cell once.

    Raises:
        BenchmarkError: a suite, protocol or submission that there is not, or that cannot be used.
    """
    registry, made = Registry(order.plugins), []
    asked = order.attacks
    if order.public is not None and asked:
        from benchmark.stats import PRIOR  # and pandas, which a process of a pool does without

        asked = (*asked, PRIOR)  # what every attack's lead is over
    for part in load_suite(order.suite, order.protocols):
        defenses = _selected(registry, "defense", order.defenses, part.defenses)
        attacks = _selected(registry, "attack", asked, part.attacks)
        if not asked:
            attacks = [one for one in attacks if one.manifest.name not in part.leave_out]
        for submission in defenses:
            if not submission.outside:  # what is, is loaded where it runs, not by a plan
                _check_defense(submission)
        trials = order.trials or part.trials
        for protocol in part.protocols:
            tuned = resolve(attacks, protocol, order.public or order.results)
            run = protocol if order.public is None else protocol.with_canaries()
            made += groups([run], defenses, tuned, order.seeds, trials)
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
