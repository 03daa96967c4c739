"""`gradleak run`, `verify`, `nightly` and `merge`: records are made, proved and joined."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmark.errors import BenchmarkError
from benchmark.options import (
    Attacks,
    Defenses,
    Device,
    Jobs,
    Key,
    Mirror,
    OwnResults,
    Plan,
    Plugins,
    Protocols,
    Results,
    Seeds,
    Trials,
    TrustPlugins,
    count,
    mirror,
    numbers,
)
from benchmark.outputs import board_of, results_of


def run(
    suite: Annotated[str, typer.Argument(metavar="SUITE_OR_PROTOCOL")],
    attack: Attacks = None,
    defense: Defenses = None,
    trials: Trials = None,
    seeds: Seeds = None,
    device: Device = "auto",
    results: OwnResults = None,
    data: Mirror = None,
    plugins: Plugins = None,
    protocols: Protocols = None,
    trust_plugins: TrustPlugins = False,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run every attack in a child process.")
    ] = False,
    key: Key = None,
    plan: Plan = False,
    verbose: Annotated[
        bool,
        typer.Option(
            "--verbose", help="Show what submissions print; with --plan: by defense and seed too."
        ),
    ] = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Show in full what failed trials raised.")
    ] = False,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Only try one small trial of each cell; write nothing."),
    ] = False,
    jobs: Jobs = 1,
    shard: Annotated[
        str | None,
        typer.Option(help="Only part I of N, for as many machines.", metavar="I/N"),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="local, or ray: a cluster's machines.", metavar="NAME")
    ] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="With ray: of the cluster; else one of this machine.", metavar="ADDR"),
    ] = None,
    per_gpu: Annotated[
        int,
        typer.Option(
            help="Processes that share a GPU; 0: as many as recorded peaks let.", min=0, metavar="K"
        ),
    ] = 0,
) -> None:
    """Run every attack against every defense of a suite or protocol; finish what is missing.

    A protocol may be a YAML file of your own. Its records, and those of a --plugins folder, go to
    a folder own-results beside it, where --results names no other.
    """
    from benchmark.running.order import Order
    from benchmark.running.shard import Shard
    from benchmark.running.start import carry_out, try_out

    order = Order(
        suite=suite,
        attacks=tuple(attack or ()),
        defenses=tuple(defense or ()),
        trials=count(trials),
        seeds=numbers(seeds),
        device=device,
        results=results_of(results, (suite,), plugins, protocols),
        mirror=mirror(data),
        plugins=tuple(plugins or ()),
        isolate=isolate,
        key=key,
        protocols=protocols,
        shard=None if shard is None else Shard.read(shard),
        jobs=jobs,
        engine=engine,
        address=address,
        per_gpu=per_gpu,
        trust=trust_plugins,
        verbose=verbose,
        traceback=traceback,
    )
    if plan and smoke:
        raise BenchmarkError("--plan and --smoke together: wanted one of them")
    raise typer.Exit(try_out(order) if smoke else carry_out(order, only_plan=plan))


def verify(
    suite: Annotated[str | None, typer.Argument(metavar="[SUITE_OR_PROTOCOL]")] = None,
    sample: Annotated[
        int, typer.Option(help="Trials of each cell; 0 runs none.", min=0, metavar="N")
    ] = 1,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only cells whose source has moved.")
    ] = False,
    hours: Annotated[
        float | None,
        typer.Option(
            help="Time to spend, cheapest cells first; 3.5 minutes with --changed, else no limit.",
            metavar="H",
        ),
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Compare with these records in place of running.", metavar="DIR"),
    ] = None,
    results: OwnResults = None,
    data: Mirror = None,
    device: Device = "auto",
    plugins: Plugins = None,
    trust_plugins: TrustPlugins = False,
    key: Key = None,
) -> None:
    """Run recorded trials again: do the records stand? Exit code 3 where they do not."""
    from benchmark.verify import Request, verify

    request = Request(
        suite=suite,
        sample=sample,
        changed=changed,
        hours=hours,
        against=against,
        results=results_of(results, (suite or "",), plugins),
        mirror=mirror(data),
        device=device,
        plugins=tuple(plugins or ()),
        key=key,
        trust=trust_plugins,
    )
    raise typer.Exit(verify(request))


def nightly(
    suite: Annotated[str, typer.Option(help="What to keep up to date.")] = "quick",
    hours: Annotated[float, typer.Option(help="Time to spend.", min=0.0, metavar="H")] = 6.0,
    sample: Annotated[
        int, typer.Option(help="Trials of each cell to verify; 0 runs none.", min=0, metavar="N")
    ] = 1,
    device: Device = "auto",
    results: Results = Path("results"),
    output: Annotated[
        Path | None,
        typer.Option(help="The board; else leaderboard.md, or beside DIR.", metavar="FILE"),
    ] = None,
    data: Mirror = None,
) -> None:
    """Run what is due, verify a sample, write the board and what changed; code 3 on drift."""
    from benchmark.nightly import Request, nightly

    board = board_of(output, results)
    published = board.with_name("reproduction.md")
    request = Request(suite, hours, results, board, published, mirror(data), device, sample)
    raise typer.Exit(nightly(request))


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...")],
    results: Results = Path("results"),
) -> None:
    """Join the records of other machines; two that differ are an error that names both files."""
    from benchmark.merging import merge

    for line in merge(results, folders):
        print(line, flush=True)
