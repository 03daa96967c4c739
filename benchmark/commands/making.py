"""`gradleak train`, `tune` and `utility`: what runs want, and what defenses cost."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmark.options import (
    SELECTS,
    Attacks,
    Defenses,
    Device,
    Mirror,
    OwnResults,
    Plugins,
    Results,
    Seeds,
    TrustPlugins,
    mirror,
    numbers,
)
from benchmark.outputs import results_of


def train(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL")],
    inverter: Annotated[
        list[str] | None,
        typer.Option(help=f"In their place the inverter of this defense{SELECTS}", metavar="NAME"),
    ] = None,
    seeds: Seeds = None,
    device: Device = "auto",
    data: Mirror = None,
    plugins: Plugins = None,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Train the victims of a protocol with `trained_on`, once; the weights go to a cache."""
    from benchmark.protocol import load_protocol
    from benchmark.registry import Registry
    from benchmark.running.device import device_named
    from benchmark.running.invert import train_inverters
    from benchmark.running.train import train
    from benchmark.running.wall import demand_trust

    chosen, place, where = load_protocol(protocol), device_named(device), mirror(data)
    if inverter:
        defenses = Registry(plugins or ()).select("defense", inverter)
        for one in () if trust_plugins else defenses:
            demand_trust(one)
        lines = train_inverters(chosen, defenses, numbers(seeds), where, place)
    else:
        lines = train(chosen, numbers(seeds), where, place)
    for line in lines:
        print(line, flush=True)


def tune(
    suite: Annotated[list[str], typer.Argument(metavar="SUITE_OR_PROTOCOL...")],
    attack: Attacks = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Public batches to judge on; else as had, or 8.", min=1, metavar="N"),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what is due; run and write nothing.")
    ] = False,
    device: Device = "auto",
    results: OwnResults = None,
    data: Mirror = None,
) -> None:
    """Tune the rates of searches on public batches, by their own objectives; finish what is due."""
    from benchmark.protocol import load_suite
    from benchmark.records import check_writable
    from benchmark.running.device import device_named
    from benchmark.running.provenance import provenance
    from benchmark.running.tune import Tuner

    parts = [part for name in suite for part in load_suite(name)]
    place = device_named(device)
    into = results_of(results, suite)
    if not plan:
        check_writable(into)
    tuner = Tuner(into, trials, plan, mirror(data), place, provenance(place))
    for line in tuner.tune(parts, attack or ()):
        print(line, flush=True)


def utility(
    protocol: Annotated[str, typer.Argument(metavar="UTILITY_PROTOCOL")],
    defense: Defenses = None,
    seeds: Seeds = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what is due; run and write nothing.")
    ] = False,
    device: Device = "auto",
    results: Results = Path("results"),
    data: Mirror = None,
    plugins: Plugins = None,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Measure what defenses cost: federated training with each of them on; finish what is due."""
    from benchmark.protocol import load_utility
    from benchmark.running.device import device_named
    from benchmark.utility import Order, measure

    order = Order(
        load_utility(protocol),
        results,
        tuple(defense or ()),
        numbers(seeds),
        tuple(plugins or ()),
        mirror(data),
        device_named(device),
        plan,
        trust_plugins,
    )
    for line in measure(order):
        print(line, flush=True)
