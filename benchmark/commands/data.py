"""`gradleak data`: what is here, and how to get the rest."""

from __future__ import annotations

from typing import Annotated

import typer

from benchmark.options import Mirror, mirror


def status(data: Mirror = None) -> None:
    """Show of every data set where it is, its size, its digest and its terms; no network."""
    from benchmark.data.status import table

    print(table(mirror(data)))


def fetch(name: Annotated[str, typer.Argument(metavar="NAME")], data: Mirror = None) -> None:
    """Bring a data set from the hub into the mirror; finish what was interrupted."""
    from benchmark.data.fetch import fetch

    for line in fetch(name, mirror(data)):
        print(line)
