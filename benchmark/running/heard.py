"""What submissions print and warn of: kept for their authors, bounded, and safe to show."""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, redirect_stderr, redirect_stdout

MOST_BYTES = 2**16
"""Of what is kept of a process's words between two times that it is listened to."""
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")  # colours and the like, as terminals read them
_CUT = "… more was said, and is not kept"


def safe(text: str) -> str:
    r"""Return a text that moves no cursor and rings no bell: its lines, less what is not printable.

    >>> safe("a\r\nb\x1b[31m\tc\x00\u202e")
    'a\nb c'
    """
    lines = _ESCAPES.sub("", text).replace("\t", " ").splitlines()
    return "\n".join("".join(filter(str.isprintable, line)) for line in lines)


class Ear:
    """A file without a name to which a process writes what it says; this one reads it."""

    def __init__(self) -> None:
        self._file, self._read = tempfile.TemporaryFile(), 0

    def fileno(self) -> int:
        """Return what the process writes to."""
        return self._file.fileno()

    def take(self) -> str:
        """Return what came since the last time, safe to show; the first part where it is much."""
        size = os.fstat(self.fileno()).st_size
        said = os.pread(self.fileno(), MOST_BYTES, self._read).decode(errors="replace")
        cut = size - self._read > MOST_BYTES
        self._read = size
        return "\n".join([safe(said), _CUT] if cut else [safe(said)]).strip("\n")

    def close(self) -> None:
        """Forget what was said."""
        self._file.close()


class Heard:
    """What the submissions of one cell said, up to as much as is kept."""

    def __init__(self) -> None:
        self._said, self._left = list[str](), MOST_BYTES

    def add(self, text: str) -> None:
        """Keep a text that is safe to show, or its beginning where it is too much."""
        if text and self._left > 0:
            self._said.append(text if len(text) <= self._left else f"{text[: self._left]}\n{_CUT}")
            self._left -= len(text)

    def take(self) -> str:
        """Return what was said since the last time."""
        said = "\n".join(self._said)
        self.__init__()  # type: ignore[misc]
        return said

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Keep what this process prints and warns of while the block runs."""
        with closing(_Page()) as page, redirect_stdout(page), redirect_stderr(page):
            try:
                yield
            finally:
                self.add(safe(page.getvalue()).strip("\n"))


class _Page(io.StringIO):
    """Text of which only the beginning is kept."""

    def write(self, text: str) -> int:
        super().write(text[: max(0, MOST_BYTES - self.tell())])
        return len(text)
