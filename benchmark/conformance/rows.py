"""What became of a promise: kept, broken with the line of the submission's own, or not asked."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints

from benchmark.running.channel import Line, one_line
from benchmark.running.heard import safe

Answer = Literal["pass", "fail", "not asked"]
END = "null"
"""The last line of a process that tells rows; without it, it ended before its time."""
_LONGEST_TRACE = 2**13  # characters; the end of one tells most


class Broken(Exception):  # noqa: N818  (a promise is; no error of ours)
    """A promise is broken; the text says how, `place` where if it is known."""

    def __init__(self, reason: str, place: str | None = None) -> None:
        super().__init__(reason)
        self.place = place


class NotAsked(Exception):  # noqa: N818
    """A promise cannot be asked of this submission; the text says why."""


Trace = Annotated[str, StringConstraints(max_length=_LONGEST_TRACE), AfterValidator(safe)]


class Row(BaseModel):
    """One promise of one submission, and all that an examination can say of it.

    Attributes:
        promise: in words.
        answer: what became of it.
        reason: one line; None where it was kept and there is nothing to add.
        place: `file:line` of the submission's own source, of what is broken.
        trace: the whole traceback, where it raised.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    promise: Line
    answer: Answer
    reason: Line | None = None
    place: Line | None = None
    trace: Trace | None = None


def ask(promise: str, kept: Callable[[], str | None], folder: Path, place: str | None) -> Row:
    """Return the row of a promise.

    Args:
        promise: in words.
        kept: returns what there is to add; raises Broken, NotAsked or whatever the submission does.
        folder: the submission's.
        place: what is blamed where nothing better is known.
    """
    try:
        said = kept()
        return Row(promise=promise, answer="pass", reason=None if said is None else one_line(said))
    except NotAsked as not_asked:
        return Row(promise=promise, answer="not asked", reason=one_line(str(not_asked)))
    except Broken as broken:
        cause, reason, where = broken.__cause__, str(broken), broken.place or place
    except (Exception, SystemExit) as error:
        cause, reason, where = error, described(error), place_of(error, folder) or place
    trace = None
    if cause is not None:
        trace = safe("".join(traceback.format_exception(cause)))[-_LONGEST_TRACE:]
    where = None if where is None else one_line(where)
    return Row(promise=promise, answer="fail", reason=one_line(reason), place=where, trace=trace)


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
