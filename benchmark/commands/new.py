"""`gradleak new`: files to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from benchmark.errors import BenchmarkError

Name = Annotated[str, typer.Argument(metavar="NAME", help="Lower-case letters, digits and _.")]
Track = Literal["images", "text"]

new_app = typer.Typer(
    help="Write what to begin with: a submission that passes gradleak check, or a protocol.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@new_app.command()
def attack(
    name: Name,
    track: Annotated[
        Track | None, typer.Option(help="What it reads; images, or text where malicious.")
    ] = None,
    search: Annotated[
        bool, typer.Option("--search", help="One that searches by gradient matching.")
    ] = False,
    malicious: Annotated[
        bool, typer.Option("--malicious", help="One of a server that chooses the parameters.")
    ] = False,
) -> None:
    """Write an attack: a folder with its manifest, the method and a test."""
    if search and malicious:
        raise BenchmarkError("--search and --malicious together: wanted one of them")
    if malicious and track == "images":
        raise BenchmarkError("--malicious: no protocol of images has such a server; wanted text")
    reads = track or ("text" if malicious else "images")
    _write(name, f"attack_{reads}" + "_search" * search + "_malicious" * malicious)


@new_app.command()
def defense(name: Name) -> None:
    """Write a defense: a folder with its manifest, the method and a test."""
    _write(name, "defense")


@new_app.command()
def protocol(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    folder: Annotated[
        Path | None, typer.Option(help="Your own images, in place of digits.", metavar="DIR")
    ] = None,
    text: Annotated[
        Path | None, typer.Option(help="Your own text, likewise.", metavar="FILE_OR_DIR")
    ] = None,
) -> None:
    """Write NAME.yaml, a protocol with every choice told, that runs as it is."""
    from benchmark.protocol.new import write

    path = write(name, folder, text)
    print(f"wrote {path}\nnext: gradleak run {path} --defense none")


def _write(name: str, template: str) -> None:
    from benchmark.scaffold.write import write

    for path in write(name, template, Path()):
        print(f"wrote {path}")
    print(f"next: gradleak check ./{name}")
