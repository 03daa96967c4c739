"""Every error a user can meet, each one line: what came, what was wanted, where."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """Return that nothing has a name, and what was meant, or else all that there is."""
    names = sorted(known)
    if near := difflib.get_close_matches(name, names, n=3):
        return f"no {kind} {name!r}; did you mean {' or '.join(near)}?"
    known = f"known: {', '.join(names)}" if names else "there is none"
    return f"no {kind} {name!r}; {known}"


def first_line(error: BaseException) -> str:
    """Return the first line of what a library says, or the kind of its error where it says none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class BenchmarkError(Exception):
    """Bad input or a bad place; the command line prints its text and exits with code 2."""


class ProtocolError(BenchmarkError):
    """A file of a protocol, suite or data set is malformed, or names what does not exist."""


class PluginError(BenchmarkError):
    """A submission cannot be found, loaded or built, or broke the contract."""


class DefenseError(PluginError):
    """A defense failed, or sent what is no update; no attack is to blame."""


class RefusedError(DefenseError):
    """A client refuses the model that it was sent; the defense did as it should."""


class RecordError(BenchmarkError):
    """A results folder or file cannot be read or written."""


class WithheldError(BenchmarkError):
    """An attack asked for a fact that the threat model does not grant."""


class NotApplicable(BenchmarkError):  # noqa: N818  (a verdict about a cell, not a fault)
    """An attack does not fit a victim or an update; said before any trial, with the reason."""


class DataUnavailable(BenchmarkError):  # noqa: N818  (the word the records and the docs use)
    """A data set or a file of weights cannot be had here.

    Args:
        name: the data set or the file.
        tried: the places looked at, in order.
        command: what would get it.
    """

    def __init__(self, name: str, tried: list[str], command: str) -> None:
        self.name, self.tried, self.command = name, tried, command
        super().__init__(f"{name} is not available: tried {', '.join(tried)}; get it by: {command}")
