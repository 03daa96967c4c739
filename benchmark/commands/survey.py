"""`gradleak survey`: closed forms on families of models."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def survey(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[MODEL...]", help="Of timm's models; none are all of the list."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Photographs, a gradient each.", min=1)] = 10,
    output: Annotated[Path, typer.Option(help="The page.", metavar="FILE")] = Path(
        "docs/victims.md"
    ),
) -> None:
    """Measure what closed forms read of families of models, and write a page; finish the list."""
    from gradleak.families import page, read
    from gradleak.survey import survey

    for each in survey(names or (), trials):
        print(f"{each.name}: {each.limit()}", flush=True)
    output.write_text(page(list(read().values())), encoding="utf-8")
    print(f"wrote {output}")
