"""`gradleak new`: files to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

new_app = typer.Typer(
    help="Write a file to begin with.", no_args_is_help=True, rich_markup_mode=None
)


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


@new_app.callback()
def _group() -> None:
    """Keep `protocol` a word of its own, though it is the only one."""
