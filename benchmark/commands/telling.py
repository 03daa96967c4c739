"""`gradleak leaderboard`, `reproduce`, `export`, `picture`, `history` and `compare`: of records."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from benchmark.options import Device, Mirror, Plan, Plugins, Results, TrustPlugins, mirror
from benchmark.outputs import board_of


def leaderboard(
    results: Results = Path("results"),
    output: Annotated[
        Path | None,
        typer.Option(help="The board; else leaderboard.md, or beside DIR.", metavar="FILE"),
    ] = None,
    verified: Annotated[
        Path | None,
        typer.Option(help="Folder of verified runs; else DIR-verified.", metavar="DIR"),
    ] = None,
    plugins: Plugins = None,
) -> None:
    """Write the leaderboard from the records alone."""
    from benchmark.attestations import Attestations, Standing
    from benchmark.leaderboard import write_board
    from benchmark.protocol import load_protocol, protocol_files
    from benchmark.registry import Registry

    protocols = [load_protocol(name) for name in protocol_files() if (results / name).is_dir()]
    standing = Standing(Attestations(results), Registry(plugins or ()), protocols)
    board = board_of(output, results)
    for line in write_board(results, board, standing.count, verified):
        print(f"gradleak: {line}", file=sys.stderr)
    print(f"wrote {board}")


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[TABLE_OR_PAPER...]", help="Such as april-table-1, or april."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Run what any table lacks; with no names nothing runs.")
    ] = False,
    suite: Annotated[str, typer.Option(help="Whose protocols answer: laptop or full.")] = "laptop",
    plan: Plan = False,
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


def export(
    output: Annotated[Path, typer.Option(help="The file; - is standard output.", metavar="FILE")],
    format_: Annotated[str, typer.Option("--format", help="csv or parquet.")] = "csv",
    results: Results = Path("results"),
) -> None:
    """Write all records as one table, a row a trial."""
    from benchmark.exporting import export

    print(export(results, output, format_), file=sys.stderr)


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


def history(
    attack: Annotated[str, typer.Argument(metavar="ATTACK")],
    defense: Annotated[str, typer.Argument(metavar="DEFENSE")],
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL")],
    results: Results = Path("results"),
) -> None:
    """Show when a cell was measured, and how its number changed, by git's history."""
    from benchmark.history import history

    print(history(results, protocol, attack, defense))


def compare(
    attack: Annotated[str, typer.Argument(metavar="ATTACK")],
    against: Annotated[str, typer.Option(help="Another attack.", metavar="NAME")],
    protocol: Annotated[list[str] | None, typer.Argument(metavar="[PROTOCOL...]")] = None,
    results: Results = Path("results"),
) -> None:
    """Tell how much more one attack sees than another, on the trials that both ran."""
    from benchmark.comparing import differences, table

    print(table(differences(results, attack, against, protocol or ()), attack, against))
