"""The command line: parse, call, print. Heavy imports wait until a command needs them."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmark.audit_command import audit
from benchmark.errors import BenchmarkError
from benchmark.options import (
    SELECTS,
    Device,
    Key,
    Mirror,
    Plugins,
    Results,
    Seeds,
    TrustPlugins,
    count,
    mirror,
    numbers,
)

UsageError: Any = typer.BadParameter.__mro__[1]  # typer brings its own click, unexported

app = typer.Typer(
    name="gradleak",
    help="Benchmark and leaderboard for gradient inversion on transformers.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
data_app = typer.Typer(
    help="Data sets: what is here, and how to get the rest.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(data_app, name="data")
app.command()(audit)


@app.command()
def run(
    suite: Annotated[str, typer.Argument(metavar="SUITE_OR_PROTOCOL")],
    attack: Annotated[
        list[str] | None, typer.Option(help=f"Only this attack{SELECTS}", metavar="NAME")
    ] = None,
    defense: Annotated[
        list[str] | None,
        typer.Option(help=f"Only this defense{SELECTS}", metavar="NAME"),
    ] = None,
    trials: Annotated[
        str | None, typer.Option(help="At most the first N trials of each seed.", metavar="N")
    ] = None,
    seeds: Seeds = None,
    device: Device = "auto",
    results: Results = Path("results"),
    data: Mirror = None,
    plugins: Plugins = None,
    trust_plugins: TrustPlugins = False,
    isolate: Annotated[
        bool, typer.Option("--isolate", help="Run every attack in a child process.")
    ] = False,
    key: Key = None,
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Only say what is due and its cost; run and write nothing."),
    ] = False,
    smoke: Annotated[
        bool,
        typer.Option("--smoke", help="Only try one small trial of each cell; write nothing."),
    ] = False,
) -> None:
    """Run every attack against every defense of a suite or protocol; finish what is missing."""
    from benchmark.running.start import Order, carry_out, try_out

    order = Order(
        suite=suite,
        attacks=tuple(attack or ()),
        defenses=tuple(defense or ()),
        trials=count(trials),
        seeds=numbers(seeds),
        device=device,
        results=results,
        mirror=mirror(data),
        plugins=tuple(plugins or ()),
        isolate=isolate,
        key=key,
        trust=trust_plugins,
    )
    if plan and smoke:
        raise BenchmarkError("--plan and --smoke together: wanted one of them")
    raise typer.Exit(try_out(order) if smoke else carry_out(order, only_plan=plan))


@app.command()
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
    results: Results = Path("results"),
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
        results=results,
        mirror=mirror(data),
        device=device,
        plugins=tuple(plugins or ()),
        key=key,
        trust=trust_plugins,
    )
    raise typer.Exit(verify(request))


@app.command()
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
) -> None:
    """Train the victims of a protocol with `trained_on`, once; the weights go to a cache."""
    from benchmark.protocol import load_protocol
    from benchmark.registry import Registry
    from benchmark.running.invert import train_inverters
    from benchmark.running.start import device_named
    from benchmark.running.train import train

    chosen, place, where = load_protocol(protocol), device_named(device), mirror(data)
    if inverter:
        defenses = Registry(plugins or ()).select("defense", inverter)
        lines = train_inverters(chosen, defenses, numbers(seeds), where, place)
    else:
        lines = train(chosen, numbers(seeds), where, place)
    for line in lines:
        print(line, flush=True)


@app.command()
def tune(
    suite: Annotated[list[str], typer.Argument(metavar="SUITE_OR_PROTOCOL...")],
    attack: Annotated[
        list[str] | None, typer.Option(help=f"Only this attack{SELECTS}", metavar="NAME")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Public batches to judge on; else as had, or 8.", min=1, metavar="N"),
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Only say what is due; run and write nothing.")
    ] = False,
    device: Device = "auto",
    results: Results = Path("results"),
    data: Mirror = None,
) -> None:
    """Tune the rates of searches on public batches, by their own objectives; finish what is due."""
    from benchmark.protocol import load_suite
    from benchmark.records import check_writable
    from benchmark.running.provenance import provenance
    from benchmark.running.start import device_named
    from benchmark.running.tune import Tuner

    parts = [part for name in suite for part in load_suite(name)]
    place = device_named(device)
    if not plan:
        check_writable(results)
    tuner = Tuner(results, trials, plan, mirror(data), place, provenance(place))
    for line in tuner.tune(parts, attack or ()):
        print(line, flush=True)


@app.command()
def utility(
    protocol: Annotated[str, typer.Argument(metavar="UTILITY_PROTOCOL")],
    defense: Annotated[
        list[str] | None, typer.Option(help=f"Only this defense{SELECTS}", metavar="NAME")
    ] = None,
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
    from benchmark.running.start import device_named
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


@app.command()
def export(
    output: Annotated[Path, typer.Option(help="The file; - is standard output.", metavar="FILE")],
    format_: Annotated[str, typer.Option("--format", help="csv or parquet.")] = "csv",
    results: Results = Path("results"),
) -> None:
    """Write all records as one table, a row a trial."""
    from benchmark.exporting import export

    print(export(results, output, format_), file=sys.stderr)


@app.command()
def leaderboard(
    results: Results = Path("results"),
    output: Annotated[Path, typer.Option(help="The board.", metavar="FILE")] = Path(
        "leaderboard.md"
    ),
) -> None:
    """Write the leaderboard from the records alone."""
    from benchmark.attestations import Attestations, Standing
    from benchmark.leaderboard import write_board
    from benchmark.protocol import load_protocol, protocol_files
    from benchmark.registry import Registry

    protocols = [load_protocol(name) for name in protocol_files() if (results / name).is_dir()]
    standing = Standing(Attestations(results), Registry(), protocols)
    for line in write_board(results, output, standing.count):
        _warn(line)
    print(f"wrote {output}")


@app.command()
def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE_OR_PAPER...]", help="Such as april-table-1, or april."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run what any table lacks; with no names nothing runs.")
    ] = False,
    suite: Annotated[str, typer.Option(help="Whose protocols answer: laptop or full.")] = "laptop",
    plan: Annotated[
        bool,
        typer.Option("--plan", help="Only say what is due and its cost; run and write nothing."),
    ] = False,
    device: Device = "auto",
    results: Results = Path("results"),
    output: Annotated[Path, typer.Option(help="The page.", metavar="FILE")] = Path(
        "reproduction.md"
    ),
    data: Mirror = None,
    plugins: Plugins = None,
) -> None:
    """Put the papers' numbers beside ours: run what is due, print verdicts, write the page."""
    from benchmark.reproduction import Request, reproduce

    request = Request(
        names=tuple(names or ()),
        everything=everything,
        suite=suite,
        plan=plan,
        device=device,
        results=results,
        output=output,
        mirror=mirror(data),
        plugins=tuple(plugins or ()),
    )
    raise typer.Exit(reproduce(request))


@app.command()
def picture(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL")],
    output: Annotated[Path, typer.Option(help="A PNG file.", metavar="FILE")],
    attack: Annotated[
        list[str] | None, typer.Option(help="A row each; may be repeated.", metavar="NAME")
    ] = None,
    defense: Annotated[
        list[str] | None, typer.Option(help="A row each; may be repeated.", metavar="NAME")
    ] = None,
    trials: Annotated[
        int, typer.Option(help="Trials; a column an image of theirs.", min=1, metavar="N")
    ] = 8,
    seed: Annotated[int, typer.Option(help="The seed of the trials.")] = 0,
    data: Mirror = None,
    plugins: Plugins = None,
    trust_plugins: TrustPlugins = False,
) -> None:
    """Draw originals and reconstructions side by side."""
    from benchmark.picturing import picture

    picture(
        protocol,
        output,
        attack or (),
        defense or ("none",),
        trials,
        seed,
        mirror(data),
        plugins,
        trust_plugins,
    )
    print(f"wrote {output}")


@app.command(name="list")
def list_(
    kind: Annotated[str, typer.Argument(metavar="attacks|defenses|protocols|data|metrics")],
    plugins: Plugins = None,
) -> None:
    """List what there is of a kind."""
    from benchmark.listing import listing

    print(listing(kind, tuple(plugins or ())))


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    plugins: Plugins = None,
) -> None:
    """Show all that is known of an attack, defense, protocol, suite, data set or metric."""
    from benchmark.listing import shown

    print(shown(name, tuple(plugins or ())))


@data_app.command()
def status(data: Mirror = None) -> None:
    """Show of every data set where it is, its size, its digest and its terms; no network."""
    from benchmark.data.status import table

    print(table(mirror(data)))


@data_app.command()
def fetch(name: Annotated[str, typer.Argument(metavar="NAME")], data: Mirror = None) -> None:
    """Bring a data set from the hub into the mirror; finish what was interrupted."""
    from benchmark.data.fetch import fetch

    for line in fetch(name, mirror(data)):
        print(line)


def main() -> None:
    """Run the command line; a bad input ends in one line and exit code 2."""
    try:
        code = app(standalone_mode=False)
    except typer.Exit as exit_:
        code = exit_.exit_code
    except (typer.Abort, KeyboardInterrupt):
        _warn("interrupted; give the same command again to finish what is missing")
        code = 130
    except UsageError as error:
        _warn(f"error: {error.format_message()}")
        code = 2
    except BenchmarkError as error:
        _warn(f"error: {error}")
        code = 2
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    sys.exit(code or 0)


def _warn(line: str) -> None:
    print(f"gradleak: {line}", file=sys.stderr)


if __name__ == "__main__":
    main()
