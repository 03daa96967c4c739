"""Runs attacks in a child process that can be killed: wall clock and memory are enforced.

The child receives the observation and returns the reconstruction as safetensors, and both sides
speak JSON lines over a pipe: no pickle either way. It inherits no environment but what Python and
torch need to start, and it is a separate address space: the truth is not in it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmark.cell import Outcome
from benchmark.contract import Stack
from benchmark.errors import PluginError
from benchmark.registry import ROOT, Submission
from benchmark.running.exchange import load_reconstruction, save_model, save_observation

_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_STARTING_SECONDS = 120.0
_GRACE_SECONDS = 5.0  # the child's own alarm comes first and says more


class Sandbox:
    """The worker that runs attacks in children, one child a submission, kept while it behaves.

    Use as a context: leaving it ends the children and removes their files.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._folder = tempfile.TemporaryDirectory(prefix="gradleak-")
        self._children: dict[str, _Child] = {}
        self._model: tuple[nn.Module, Path] | None = None

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.kill()
        self._folder.cleanup()

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Run one attack on a stack; see `cell.Worker`."""
        try:
            model = self._model_file(stack.model)
        except PluginError as error:
            return [Outcome(None, "failed", str(error), 0.0, None)] * len(stack)
        outcomes = self._ask(submission, stack, model)
        if outcomes is None and len(stack) > 1:  # the child died: which trial was it?
            alone = (self._ask(submission, stack[i : i + 1], model) for i in range(len(stack)))
            return [outcome[0] if outcome else self._died(submission) for outcome in alone]
        return outcomes or [self._died(submission)]

    def _ask(self, submission: Submission, stack: Stack, model: Path) -> list[Outcome] | None:
        """Have a stack run by the submission's child; None where the child did not live to tell."""
        child = self._children.get(submission.label)
        if child is None or not child.alive:
            child = self._children[submission.label] = _Child(submission, self._device)
        with tempfile.TemporaryDirectory(dir=self._folder.name) as exchange:
            files = [str(Path(exchange) / f"{i}.safetensors") for i in range(len(stack))]
            for seen, file in zip(stack, files, strict=True):
                save_observation(seen, Path(file))
            # a stack that fails is run again trial by trial, so it may take its time twice
            limit = (2 if len(stack) > 1 else 1) * len(stack) * stack[0].budget.seconds
            request = {"model": str(model), "observations": files, "answers": exchange}
            answer = child.ask(request, limit + _GRACE_SECONDS)
            return None if answer is None else [_outcome(each) for each in answer["outcomes"]]

    def _died(self, submission: Submission) -> Outcome:
        child = self._children[submission.label]
        return Outcome(None, child.status, child.reason, child.seconds, None)

    def _model_file(self, model: nn.Module) -> Path:
        if self._model is None or self._model[0] is not model:
            if self._model is not None:
                self._model[1].unlink(missing_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._folder.name, suffix=".safetensors")
            os.close(descriptor)
            save_model(model, Path(name))
            self._model = (model, Path(name))
        return self._model[1]


class _Child:
    """A process that runs one submission."""

    def __init__(self, submission: Submission, device: torch.device) -> None:
        self.status: Any = "failed"
        self.reason, self.seconds = "", 0.0
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmark.running.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env={**kept, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
        start = {
            "manifest": submission.manifest.model_dump(mode="json"),
            "folder": str(submission.folder),
            "arguments": submission.arguments,
            "device": str(device),
            "threads": torch.get_num_threads(),
        }
        answer = self.ask(start, _STARTING_SECONDS)
        if answer and "error" in answer:
            self.kill()
            self.reason = answer["error"]

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any] | None:
        """Send a request and wait for the answer; None, with the reason kept, if none comes."""
        assert self._process.stdin
        assert self._process.stdout
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            ready, _, _ = select.select([self._process.stdout], [], [], limit)
            line = self._process.stdout.readline() if ready else b""
        except OSError:
            ready, line = [self._process.stdout], b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        if self.reason:  # it never started
            return None
        if not ready:
            self.status, self.seconds = "timed_out", limit - _GRACE_SECONDS
            self.reason = f"passed its limit of {limit - _GRACE_SECONDS:g} s and was killed"
        self.kill()
        if ready:
            code = self._process.returncode
            died = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            self.reason = f"its process died: {died}"
        return None

    def kill(self) -> None:
        """End the process and all it started."""
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                try:
                    pipe.close()
                except OSError:
                    pass


def _outcome(answer: dict[str, Any]) -> Outcome:
    file = answer.pop("file")
    return Outcome(load_reconstruction(Path(file)) if file else None, **answer)


def described(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data, less its reconstruction."""
    return {key: value for key, value in asdict(outcome).items() if key != "reconstruction"}
