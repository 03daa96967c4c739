"""One child: a process that runs one submission, spoken to by a channel, killed by its parent."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch

from benchmark.identity import ROOT
from benchmark.records import FailureKind
from benchmark.registry import Submission
from benchmark.running import launch
from benchmark.running.channel import Answer, Channel, NonsenseError, SilenceError
from benchmark.running.heard import Ear
from benchmark.running.wall import walled

STARTING_SECONDS = 120.0
_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_INTRODUCTION_BYTES = 2**16
_NUMBERS = itertools.count(os.getpid())
"""Of children, each a user of its own."""
NONSENSE = "its process gave an answer that makes no sense"


def last_word(code: int, *, walled: bool) -> str:
    """Return how a process ended, by its exit code, which bubblewrap passes on in its own way."""
    number = code - 128 if walled and code > 128 else -code
    if number <= 0:
        return f"exit code {code}"
    known = number in set(signal.Signals)
    return f"signal {signal.Signals(number).name if known else number}"


class Child:
    """A process that runs one submission.

    Attributes:
        unfit: it could not import its submission, and no other child will.
        loops: whether its attack takes trials one by one.
        allowed: bytes of memory it may take above what it held before the import; more than the
            machine has is never asked for.
        exchange: the folder that it may read.
        models: files of the networks that it has read.
        introduction: what a defense says of itself, as bytes.
        ear: what it prints.
        seconds: what the last thing asked took, by this process's clock.
        status: of the trials it died on, with `kind` and `reason`.
    """

    def __init__(
        self,
        submission: Submission,
        device: torch.device,
        exchange: Path,
        *,
        allowed: int,
        wall: bool,
    ) -> None:
        self.unfit, self.loops, self.allowed = False, False, allowed
        self.introduction, self.ear = b"", Ear()
        self.exchange, self.models = exchange, list[str]()
        self.status: Literal["failed", "timed_out"] = "failed"
        self.kind: FailureKind = "crashed"
        self.reason, self.seconds = "", 0.0
        self._wall, gpu = wall, device.type == "cuda"
        command = launch.command("benchmark.running.child")
        if wall:
            command = walled(command, submission, [exchange], user=next(_NUMBERS), gpu=gpu)
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.ear.fileno(),
            bufsize=0,
            cwd=ROOT,
            env={**kept, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
        assert self._process.stdin
        assert self._process.stdout
        self._channel = Channel(self._process.stdin, self._process.stdout)
        start = {
            "manifest": submission.manifest.model_dump(mode="json"),
            "folder": str(submission.folder),
            "arguments": submission.arguments,
            "device": str(device),
            "threads": torch.get_num_threads(),
            "allowed": allowed,
            "walled": wall,
        }
        self._start(start, submission.label)

    def _start(self, start: dict[str, Any], label: str) -> None:
        answered = self.ask(start, STARTING_SECONDS, largest=_INTRODUCTION_BYTES)
        if answered is None:
            self.unfit = True
            self.reason = f"{label}: its process could not start: {self.reason}"
        elif (answer := answered[0][0]).status != "ready":
            self.unfit, self.reason = True, answer.reason or NONSENSE
            self.kill()
        else:
            self.loops, self.introduction = answer.loops, bytes(answered[0][1])

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(
        self,
        request: dict[str, Any],
        seconds: float,
        *,
        grace: float = 0.0,
        count: int = 1,
        largest: int = 0,
        behind: Sequence[memoryview] = (),
    ) -> list[tuple[Answer, memoryview]] | None:
        """Send a request and return the answers; None, with the reason kept, if none come.

        Args:
            request: plain data.
            seconds: it may take so many.
            grace: after so many more it is killed.
            count: of the answers.
            largest: bytes that may come behind one of them.
            behind: bytes that follow the request, in parts.
        """
        began = time.monotonic()
        try:
            return self._channel.ask(request, count, began + seconds + grace, largest, behind)
        except TimeoutError:
            self.status, self.kind = "timed_out", "timeout"
            self.reason = f"passed its limit of {seconds:g} s and was killed"
            self.kill()
        except NonsenseError:
            self.status, self.kind, self.reason = "failed", "invalid_answer", NONSENSE
            self.kill()
        except (SilenceError, OSError):
            self.kill(politely=True)
            self.status, self.kind = "failed", "crashed"
            self.reason = f"its process died: {self._last_word()}"
        finally:
            self.seconds = time.monotonic() - began
        return None

    def _last_word(self) -> str:
        return last_word(self._process.returncode, walled=self._wall)

    def kill(self, *, politely: bool = False) -> None:
        """End the process and all it started; politely, let a dying one say how it died."""
        if politely:
            try:
                self._process.wait(1)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()
