"""A bar on a terminal, nothing in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


@contextmanager
def bar(name: str, total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar while the block runs, and give what moves it on by one, with a word beside it.

    Args:
        name: what is being done.
        total: how many times.
    """
    console = Console(file=sys.stdout)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    word = TextColumn("{task.fields[word]}")
    hidden = not console.is_terminal
    with Progress(
        *columns, word, TimeElapsedColumn(), console=console, transient=True, disable=hidden
    ) as progress:
        task = progress.add_task(name, total=total, word="")
        yield lambda said: progress.update(task, advance=1, word=said)
