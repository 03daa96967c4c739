"""One submission examined in a process of its own; what comes from outside, behind the wall."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from benchmark.conformance.rows import END, Row
from benchmark.identity import OWN, ROOT
from benchmark.registry import Registry, Submission, exactly
from benchmark.running import launch
from benchmark.running.heard import Ear
from benchmark.running.process import NONSENSE, last_word
from benchmark.running.wall import demand, walled

_LIMIT_SECONDS = 600.0
_MOST_BYTES = 2**20
"""Of all rows together."""


def examined(
    submission: Submission,
    plugins: Sequence[Path],
    victims: Sequence[Path] = (),
    *,
    trust: bool = False,
    ear: Ear | None = None,
) -> Iterator[Row]:
    """Examine a submission in a process of its own, which ends after ten minutes.

    A process that dies, or says what is no row, is a row that fails.

    Args:
        submission: with its arguments.
        plugins: folders of those that it may know how to meet.
        victims: files of protocols in place of the small victims.
        trust: whether what comes from outside may run without a wall.
        ear: keeps what it prints; else that goes to standard error.

    Raises:
        PluginError: it comes from outside, and there is no wall.
    """
    behind = submission.outside and not trust
    others = _others(submission, plugins)
    command = launch.command("benchmark.conformance.child")
    if behind:
        demand(submission)
        shown = [OWN, *others, *victims]
        command = walled(command, submission, shown, user=os.getpid(), gpu=False, data=True)
    threads = os.environ.get("OMP_NUM_THREADS", "")
    asked = {
        "kind": submission.manifest.kind,
        "label": exactly(submission.label),
        "plugins": [str(folder) for folder in others],
        "victims": [str(file) for file in victims],
        "threads": int(threads) if threads.isdecimal() else None,
        "walled": behind,
    }
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=None if ear is None else ear.fileno(),
        cwd=ROOT,
        start_new_session=True,
    )
    said = _said(child, json.dumps(asked).encode() + b"\n")
    last = "nothing"
    for line in said.decode(errors="replace").splitlines():
        if line == END:
            return
        try:
            row = Row.model_validate_json(line)
        except ValueError:  # pydantic's error is one
            yield Row(promise="lives to the end", answer="fail", reason=NONSENSE)
            return
        last = row.promise
        yield row
    ended = last_word(child.returncode, walled=behind)
    reason = f"its process ended by {ended} after: {last}".replace("by exit", "with exit")
    yield Row(promise="lives to the end", answer="fail", reason=reason)


def _others(submission: Submission, plugins: Sequence[Path]) -> list[Path]:
    """Return the folders, outside the repository, of a submission and the defenses it knows."""
    registry = Registry(plugins)
    known = [
        one for name in submission.manifest.adaptive_to for one in registry.find("defense", name)
    ]
    outside = (one for one in (submission, *known) if one.outside and "/" not in one.label)
    return list(dict.fromkeys(one.folder for one in outside))


def _said(child: subprocess.Popen[bytes], asked: bytes) -> bytes:
    """Ask a process, and return all that it says until it ends, or as much as it may."""
    assert child.stdin
    assert child.stdout
    said, end = bytearray(), time.monotonic() + _LIMIT_SECONDS
    with suppress(BrokenPipeError), child.stdin as pipe:
        pipe.write(asked)
    while len(said) < _MOST_BYTES:
        left = max(end - time.monotonic(), 0)
        if not select.select([child.stdout], [], [], left)[0]:
            break
        part = os.read(child.stdout.fileno(), 2**16)
        if not part:
            with suppress(subprocess.TimeoutExpired):
                child.wait(1)  # and say how it ended
            break
        said += part
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    return bytes(said)
