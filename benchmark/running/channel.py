"""What a child may say, and the pipes it is said by.

The parent writes a line of JSON, and behind it the bytes that it announces; the child answers with
lines of JSON, each one `Answer`, and behind each its bytes. A child is not believed: what is no
`Answer`, is longer than it may be or comes unasked is `NonsenseError`, and nothing is opened,
mapped or unpickled.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Sequence
from typing import IO, Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from benchmark.contract import Grant

LONGEST_REASON = 200
"""Characters of a reason."""
_LONGEST_LINE = 2**14  # bytes of JSON: a reason of such characters, each written as \\uXXXX, fits
_LARGEST = 2**36  # bytes behind an answer, whatever is asked


class NonsenseError(Exception):
    """A child said what makes no sense."""


class SilenceError(Exception):
    """A child's end of the pipe is closed: it is no more, or will say nothing."""


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("not one printable line")
    return text


Line = Annotated[str, StringConstraints(max_length=LONGEST_REASON), AfterValidator(_printable)]
ChildsKind = Literal["timeout", "out_of_memory", "crashed", "invalid_answer", "mutated", "refused"]
"""What a child may call a failure: the others are the client's."""


class Answer(BaseModel):
    """All that a child can say of one thing asked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Literal[
        "ready",
        "applies",
        "not_applicable",
        "corrupted",
        "completed",
        "failed",
        "timed_out",
        "same",
        "asks",
    ]
    """`same`: a hook handed back what it was given; `asks`: it wants a gradient of a batch."""
    reason: Line | None = None
    kind: ChildsKind | None = None
    missing: Annotated[tuple[Grant, ...], Field(max_length=len(Grant))] = ()
    """Facts that an attack lacks."""
    loops: bool = False
    """Whether it takes trials one by one; said once, when it is ready."""
    peak_bytes: Annotated[int, Field(ge=0, lt=2**50)] | None = None
    size: Annotated[int, Field(ge=0, le=_LARGEST)] = 0
    """Bytes that follow the line: safetensors."""


def one_line(text: str) -> str:
    r"""Return a text as a reason may be: one printable line, cut where it is too long.

    >>> one_line("no\n  such\x00 thing")
    'no such thing'
    """
    shown = "".join(each if each.isprintable() else " " for each in text)
    line = " ".join(shown.split())
    return line if len(line) <= LONGEST_REASON else f"{line[: LONGEST_REASON - 1]}…"


def say(pipe: IO[bytes], answer: Answer, behind: Sequence[bytes | memoryview] = ()) -> None:
    """Send an answer, from the child, with the bytes behind it, in parts."""
    size = sum(len(part) for part in behind)
    said = answer.model_copy(update={"size": size}).model_dump_json(exclude_defaults=True)
    for part in (said.encode() + b"\n", *behind):
        left = memoryview(part)
        while left:
            left = left[pipe.write(left) :]


class Channel:
    """The parent's ends of a child's two pipes; nothing here waits longer than it is told."""

    def __init__(self, requests: IO[bytes], answers: IO[bytes]) -> None:
        self._requests, self._answers = requests, answers
        os.set_blocking(requests.fileno(), False)  # a child need not read

    def ask(
        self,
        request: dict[str, Any],
        count: int,
        deadline: float,
        largest: int = 0,
        behind: Sequence[memoryview] = (),
    ) -> list[tuple[Answer, memoryview]]:
        """Send a request and return so many answers, each with what came behind it.

        Args:
            request: plain data.
            count: of the answers wanted.
            deadline: by time.monotonic().
            largest: bytes that may come behind one answer.
            behind: bytes that follow the request, in parts.

        Raises:
            TimeoutError: the deadline passed.
            NonsenseError: the child spoke before it was asked, or what it said is no answer.
            SilenceError: it says no more.
        """
        if select.select([self._answers], [], [], 0)[0] and self._read(1, deadline):
            raise NonsenseError
        self._send(json.dumps(request).encode() + b"\n", deadline)
        for part in behind:
            self._send(part, deadline)
        answers = []
        for _ in range(count):
            answer = self._answer(deadline)
            if answer.size > largest:
                raise NonsenseError
            answers.append((answer, self._exactly(answer.size, deadline)))
        return answers

    def _send(self, part: bytes | memoryview, deadline: float) -> None:
        left = memoryview(part)
        while left:
            self._wait(deadline, writing=True)
            try:
                left = left[os.write(self._requests.fileno(), left) :]
            except BrokenPipeError:
                raise SilenceError from None

    def _answer(self, deadline: float) -> Answer:
        """Read a line byte by byte, so that what stands behind it stays in the pipe."""
        line = bytearray()
        while not line.endswith(b"\n"):
            byte = self._read(1, deadline)
            if not byte or len(line) == _LONGEST_LINE:
                raise NonsenseError if line else SilenceError
            line += byte
        try:
            return Answer.model_validate_json(bytes(line))
        except (ValueError, RecursionError):  # pydantic's error is a ValueError
            raise NonsenseError from None

    def _exactly(self, size: int, deadline: float) -> memoryview:
        """Read so many bytes; memory is taken as they come, not as they are announced."""
        data = np.empty(size, np.uint8).data  # in large pages
        left = data
        while left:
            self._wait(deadline)
            read = os.readv(self._answers.fileno(), [left])
            if not read:
                raise NonsenseError
            left = left[read:]
        return data

    def _read(self, most: int, deadline: float) -> bytes:
        self._wait(deadline)
        return os.read(self._answers.fileno(), most)

    def _wait(self, deadline: float, *, writing: bool = False) -> None:
        left = max(deadline - time.monotonic(), 0)
        pipe = [self._requests if writing else self._answers]
        ready = select.select([], pipe, [], left) if writing else select.select(pipe, [], [], left)
        if not any(ready):
            raise TimeoutError
