"""What several commands of the command line are told, and how it is read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from benchmark.errors import BenchmarkError

SELECTS = ", with all its variants, or NAME,key=value, or NAME,defaults; may be repeated."

Attacks = Annotated[
    list[str] | None, typer.Option("--attack", help=f"Only this attack{SELECTS}", metavar="NAME")
]
Defenses = Annotated[
    list[str] | None, typer.Option("--defense", help=f"Only this defense{SELECTS}", metavar="NAME")
]
Trials = Annotated[
    str | None, typer.Option(help="At most the first N trials of each seed.", metavar="N")
]
Protocols = Annotated[
    Path | None, typer.Option(help="A folder of your own protocols and suites.", metavar="DIR")
]
Plan = Annotated[
    bool, typer.Option("--plan", help="Only say what is due and its cost; run and write nothing.")
]
Results = Annotated[Path, typer.Option(help="Folder of the records.", metavar="DIR")]
OwnResults = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the records; else `results`, or own-results beside what is your own.",
        metavar="DIR",
    ),
]
Plugins = Annotated[
    list[Path] | None,
    typer.Option(
        help="Another folder of submissions; its attacks run isolated.",
        metavar="DIR",
        envvar="GRADLEAK_PLUGINS",
        show_envvar=False,
    ),
]
TrustPlugins = Annotated[
    bool,
    typer.Option(
        "--trust-plugins", help="Run the code of --plugins without a wall; its records say so."
    ),
]
Mirror = Annotated[
    Path | None,
    typer.Option(help="Local mirror of data sets and weights; else $GRADLEAK_DATA.", metavar="DIR"),
]
Key = Annotated[
    Path | None,
    typer.Option(
        help="Key of what clients draw in secret, 16 random bytes or more; else a public one.",
        metavar="FILE",
    ),
]
Seeds = Annotated[
    str | None, typer.Option(help="Other seeds than the protocol's.", metavar="0,1,2")
]
Jobs = Annotated[
    int,
    typer.Option(
        help="Processes of a machine, among which cores are divided; 0: as many as fit.",
        min=0,
        metavar="N",
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def mirror(given: Path | None) -> Path | None:
    """Return the mirror's folder: the option, else the environment."""
    environment = os.environ.get("GRADLEAK_DATA")
    named = given or (Path(environment) if environment else None)
    if named is not None and not named.is_dir():
        raise BenchmarkError(f"{named}: no such folder; --data wants a mirror of data sets")
    return named


def count(text: str | None) -> int | None:
    """Read a number of trials."""
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise BenchmarkError(f"--trials {text!r}: wanted a whole number from 1 on")
    return int(text)


def numbers(text: str | None) -> tuple[int, ...] | None:
    """Read seeds."""
    if text is None:
        return None
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise BenchmarkError(f"--seeds {text!r}: wanted whole numbers such as 0,1,2") from None
