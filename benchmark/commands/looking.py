"""`gradleak list`, `show` and `check`: what there is, and whether it keeps its promises."""

from __future__ import annotations

import shutil
import sys
from typing import Annotated

import typer

from benchmark.options import Plugins, TrustPlugins


def list_(
    kind: Annotated[str, typer.Argument(metavar="attacks|defenses|protocols|data|metrics|victims")],
    plugins: Plugins = None,
) -> None:
    """List what there is of a kind."""
    from benchmark.listing import listing

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    print(listing(kind, tuple(plugins or ()), width))


def show(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    plugins: Plugins = None,
) -> None:
    """Show all that is known of an attack, defense, protocol, suite, data set or metric."""
    from benchmark.listing import shown

    print(shown(name, tuple(plugins or ())))


def check(
    named: Annotated[str, typer.Argument(metavar="FOLDER_OR_NAME")],
    protocol: Annotated[
        list[str] | None,
        typer.Option(help="In place of the small victims; may be repeated.", metavar="NAME"),
    ] = None,
    plugins: Plugins = None,
    trust_plugins: TrustPlugins = False,
    traceback: Annotated[
        bool, typer.Option("--traceback", help="Print in full what the submission raised.")
    ] = False,
) -> None:
    """Ask a submission for every promise of the contract; exit code 1 where one is broken."""
    from benchmark.conformance.start import check

    code = check(named, plugins or (), protocol or (), trust=trust_plugins, traceback=traceback)
    raise typer.Exit(code)
