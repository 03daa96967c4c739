"""The command line: its commands are in `commands/`. Heavy imports wait until one needs them."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Any

import typer

from benchmark.commands import audit, data, looking, making, new, running, survey, telling, verified
from benchmark.errors import BenchmarkError

UsageError: Any = typer.BadParameter.__mro__[1]  # typer brings its own click, unexported

app = typer.Typer(
    name="gradleak",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"gradleak {version('gradleak')}")
        raise typer.Exit


@app.callback()
def _gradleak(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Benchmark and leaderboard for gradient inversion on transformers."""


for command in (
    *(running.run, running.verify, verified.verified, running.nightly, running.merge),
    *(telling.leaderboard, telling.reproduce, telling.export, telling.picture),
    *(telling.history, telling.compare),
    *(making.train, making.tune, making.utility),
    *(audit.audit, survey.survey, looking.show, looking.check),
):
    app.command()(command)
app.command(name="list")(looking.list_)
app.add_typer(new.new_app, name="new")
data_app = typer.Typer(help=data.__doc__, no_args_is_help=True, rich_markup_mode=None)
data_app.command()(data.status)
data_app.command()(data.fetch)
app.add_typer(data_app, name="data")


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
