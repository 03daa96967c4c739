"""What became of a promise: kept, broken with the line of the submission's own, or not asked."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Answer = Literal["pass", "fail", "not asked"]
END = "null"
"""The last line of a process that tells rows; without it, it ended before its time."""


class Broken(Exception):  # noqa: N818  (a promise is; no error of ours)
    """A promise is broken; the text says how, `place` where if it is known."""

    def __init__(self, reason: str, place: str | None = None) -> None:
        super().__init__(reason)
        self.place = place


class NotAsked(Exception):  # noqa: N818
    """A promise cannot be asked of this submission; the text says why."""


@dataclass(frozen=True)
class Row:
    """One promise of one submission.

    Attributes:
        promise: in words.
        answer: what became of it.
        reason: one line; None where it was kept and there is nothing to add.
        place: `file:line` of the submission's own source, of what is broken.
        trace: the whole traceback, where it raised.
    """

    promise: str
    answer: Answer
    reason: str | None = None
    place: str | None = None
    trace: str | None = None


def ask(promise: str, kept: Callable[[], str | None], folder: Path, place: str | None) -> Row:
    """Return the row of a promise.

    Args:
        promise: in words.
        kept: returns what there is to add; raises Broken, NotAsked or whatever the submission does.
        folder: the submission's.
        place: what is blamed where nothing better is known.
    """
    try:
        return Row(promise, "pass", kept())
    except NotAsked as reason:
        return Row(promise, "not asked", str(reason))
    except Broken as broken:
        cause = broken.__cause__
        told = "".join(traceback.format_exception(cause)) if cause else None
        return Row(promise, "fail", str(broken), broken.place or place, told)
    except (Exception, SystemExit) as error:
        told = "".join(traceback.format_exception(error))
        return Row(promise, "fail", described(error), place_of(error, folder) or place, told)


def described(error: BaseException) -> str:
    """Return an exception in one line."""
    said = str(error).strip().splitlines()
    return f"{type(error).__name__}: {said[0]}" if said else type(error).__name__


def place_of(error: BaseException | None, folder: Path) -> str | None:
    """Return the last line of a folder's own source that an exception came through."""
    while error is not None:
        frames = traceback.extract_tb(error.__traceback__)
        own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
        if own:
            return f"{Path(own[-1].filename).relative_to(folder)}:{own[-1].lineno}"
        if isinstance(error, SyntaxError) and error.filename and error.lineno:
            return f"{Path(error.filename).name}:{error.lineno}"
        error = error.__cause__ or error.__context__
    return None


def line_of(made: type, folder: Path, *names: str) -> str | None:
    """Return where a class, or the first of some methods that are its folder's own, begins."""
    for one in [*(vars(made).get(name) for name in names), made]:
        if one is None or not (inspect.isfunction(one) or inspect.isclass(one)):
            continue
        code = inspect.unwrap(one)
        file = Path(inspect.getsourcefile(code) or "")
        if file.is_relative_to(folder):
            return f"{file.relative_to(folder)}:{inspect.getsourcelines(code)[1]}"
    return None
