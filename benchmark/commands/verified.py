"""`gradleak verified`: what an attack reads of private batches that no data set holds."""

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
    Mirror,
    OwnResults,
    Plan,
    Plugins,
    Protocols,
    Seeds,
    Trials,
    numbers,
)
from benchmark.options import count as count_of
from benchmark.options import mirror as mirror_of
from benchmark.outputs import canaries_of, results_of


def verified(
    suite: Annotated[str, typer.Argument(metavar="SUITE_OR_PROTOCOL")],
    key: Annotated[
        Path,
        typer.Option(
            help="Of every draw: 16 random bytes or more, outside the repository.", metavar="FILE"
        ),
    ],
    attack: Attacks = None,
    defense: Defenses = None,
    trials: Trials = None,
    seeds: Seeds = None,
    device: Device = "auto",
    results: OwnResults = None,
    data: Mirror = None,
    plugins: Plugins = None,
    protocols: Protocols = None,
    jobs: Jobs = 1,
    plan: Plan = False,
) -> None:
    """Run attacks on canaries under a secret key, and hold their public records against them.

    The records go to a folder of the key beside --results, which holds the public ones. Exit code
    3 where an attack is flagged: it reads more of public trials than of canaries.
    """
    from benchmark.identity import ROOT
    from benchmark.leaderboard.verified import FLAGGED, judge, table
    from benchmark.running.order import Order
    from benchmark.running.provenance import read_key
    from benchmark.running.start import INTERRUPTED, carry_out

    if key.resolve().is_relative_to(ROOT):
        raise BenchmarkError(f"--key {key}: lies in the repository; wanted a file outside of it")
    digest = read_key(key).digest
    public = results_of(results, (suite,), plugins, protocols)
    order = Order(
        suite=suite,
        attacks=tuple(attack or ()),
        defenses=tuple(defense or ()),
        trials=count_of(trials),
        seeds=numbers(seeds),
        device=device,
        results=canaries_of(public) / str(digest),
        mirror=mirror_of(data),
        plugins=tuple(plugins or ()),
        key=key,
        protocols=protocols,
        jobs=jobs,
        public=public,
    )
    print(f"key {digest}: publish these digits before the run, and the key after it")
    code = carry_out(order, only_plan=plan)
    if plan or code == INTERRUPTED:
        raise typer.Exit(code)
    found = judge(public, [order.results])
    print(table(found))
    raise typer.Exit(code or (FLAGGED if any(one.flagged for one in found) else 0))
