"""Runs attacks in a child process that can be killed: wall clock and memory are enforced.

The child receives the observation and returns the reconstruction as safetensors, and both sides
speak JSON lines over a pipe: no pickle either way. It inherits no environment but what Python and
torch need to start, and it is a separate address space: the truth is not in it. What it says is
not trusted: an answer that makes no sense is a failure of its trial.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from benchmark.cell import Outcome, Verdict
from benchmark.contract import Budget, Grant, Knowledge, Observation, Stack, Update, Victim
from benchmark.errors import NotApplicable, PluginError
from benchmark.identity import ROOT
from benchmark.records import FailureKind
from benchmark.registry import Submission
from benchmark.running.exchange import (
    PARAMETERS,
    load_parameters,
    load_reconstruction,
    save_model,
    save_observation,
)

_KEPT_VARIABLES = ("PATH", "HOME", "TMPDIR", "LANG", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES")
_STARTING_SECONDS = 120.0
_GRACE_SECONDS = 5.0  # the child's own alarm comes first and says more
_LONGEST_ANSWER = 2**22  # bytes of JSON
_NONSENSE = "its process gave an answer that makes no sense"


class Sandbox:
    """The worker that runs attacks in children, one child a submission, kept while it behaves.

    Use as a context: leaving it ends the children and removes their files; where this process is
    killed, a child that is left without it does. See `cell.Worker`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._files: tempfile.TemporaryDirectory[str] | None = None
        self._children: dict[str, _Child] = {}
        self._models: dict[nn.Module, Path] = {}

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.kill()
        if self._files is not None:
            self._files.cleanup()

    @property
    def _folder(self) -> str:
        """Where files are exchanged; made when first wanted."""
        if self._files is None:
            self._files = tempfile.TemporaryDirectory(prefix="gradleak-")
        return self._files.name

    def load(self, submission: Submission) -> None:
        """Have a child import an attack, or raise PluginError."""
        child = self._child(submission)
        if child.unfit:
            raise PluginError(child.reason)

    def corrupt(
        self, submission: Submission, model: Victim, known: Knowledge, draws: torch.Generator
    ) -> dict[str, Tensor]:
        """Have a child choose the parameters to send."""
        budget = Budget(_STARTING_SECONDS, 0)
        seen = Observation(Update({}), model, known, budget, draws)
        with tempfile.TemporaryDirectory(dir=self._folder) as exchange:
            child = self._child(submission)
            answer = self._ask(child, "corrupt", Stack([seen]), exchange, budget.seconds)
            if answer is None:
                raise PluginError(f"{submission.label}: corrupt: {child.reason}")
            if answer.get("status") == "not_applicable":
                raise NotApplicable(str(answer.get("reason")))
            if answer.get("status") != "corrupted":
                raise PluginError(str(answer.get("reason")))
            try:
                return load_parameters(Path(exchange) / PARAMETERS)
            except (OSError, SafetensorError) as error:
                raise PluginError(f"{submission.label}: corrupt: sent no parameters") from error

    def applies(self, submission: Submission, seen: Observation) -> Verdict:
        """Have a child ask its attack whether it fits."""
        with tempfile.TemporaryDirectory(dir=self._folder) as exchange:
            child = self._child(submission)
            answer = self._ask(child, "applies", Stack([seen]), exchange, seen.budget.seconds)
            if answer is None:
                return Verdict("failed", child.reason, kind=child.kind)
            said = answer.get("status")
            reason = str(answer.get("reason"))
            if said == "applies":
                return Verdict("applies", None)
            if said == "not_applicable":
                missing = answer.get("missing")
                known = missing if isinstance(missing, list) else []
                return Verdict("not_applicable", reason, tuple(g for g in Grant if g in known))
            return Verdict("failed", reason, kind=_told_kind(answer.get("kind")))

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Have a child run its attack on a stack."""
        with tempfile.TemporaryDirectory(dir=self._folder) as exchange:
            child = self._child(submission)
            # a stack that fails is run again trial by trial, so it may take its time twice
            limit = (2 if len(stack) > 1 else 1) * len(stack) * stack[0].budget.seconds
            answer = self._ask(child, "reconstruct", stack, exchange, limit)
            outcomes = None if answer is None else _outcomes(answer, Path(exchange), len(stack))
        if outcomes is not None:
            return outcomes
        if len(stack) > 1 and not child.unfit:  # which trial was it?
            return [self.reconstruct(submission, stack[i : i + 1])[0] for i in range(len(stack))]
        reason, kind = child.reason, child.kind
        if answer is not None:
            reason, kind = _NONSENSE, "invalid_answer"
        child.kill()
        died = Outcome(None, child.status, reason, child.seconds, None, kind=kind)
        return [died] * len(stack)

    def _child(self, submission: Submission) -> _Child:
        """Return the submission's child: a new one if the last died, none anew if it never ran."""
        child = self._children.get(submission.label)
        if child is None or not (child.alive or child.unfit):
            child = self._children[submission.label] = _Child(
                submission, self._device, self._folder
            )
        return child

    def _ask(
        self, child: _Child, what: str, stack: Stack, exchange: str, limit: float
    ) -> dict[str, Any] | None:
        """Write a stack to a folder and send a request; None where the child did not answer."""
        if child.unfit:
            return None
        try:
            models = self._model_files(stack.networks)
        except PluginError as error:
            child.reason = str(error)
            return None
        files = [str(Path(exchange) / f"{i}.safetensors") for i in range(len(stack))]
        for seen, file in zip(stack, files, strict=True):
            save_observation(seen, Path(file))
        request = {"what": what, "models": models, "observations": files, "answers": exchange}
        return child.ask(request, limit + _GRACE_SECONDS)

    def _model_files(self, networks: Sequence[nn.Module]) -> list[str]:
        """Return the files of a stack's networks, each written once; those of others go."""
        for network in self._models.keys() - set(networks):
            self._models.pop(network).unlink(missing_ok=True)
        for network in networks:
            if network not in self._models:
                descriptor, name = tempfile.mkstemp(dir=self._folder, suffix=".safetensors")
                os.close(descriptor)
                save_model(network, Path(name))
                self._models[network] = Path(name)
        return [str(self._models[network]) for network in networks]


class _Child:
    """A process that runs one submission.

    Attributes:
        unfit: it could not import its submission, and no other child will.
        status: of the trials it died on, with `kind`, `reason` and `seconds`.
    """

    def __init__(self, submission: Submission, device: torch.device, exchange: str) -> None:
        self.unfit = False
        self.status: Literal["failed", "timed_out"] = "failed"
        self.kind: FailureKind = "crashed"
        self.reason, self.seconds = "", 0.0
        kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmark.running.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd=ROOT,
            env={**kept, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,
        )
        start = {
            "manifest": submission.manifest.model_dump(mode="json"),
            "folder": str(submission.folder),
            "arguments": submission.arguments,
            "device": str(device),
            "exchange": exchange,
            "threads": torch.get_num_threads(),
        }
        answer = self.ask(start, _STARTING_SECONDS)
        if answer is None or "error" in answer:
            self.unfit = True
            if answer is not None:
                self.reason = str(answer["error"])
                self.kill()
            else:
                self.reason = f"{submission.label}: its process could not start: {self.reason}"

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, request: dict[str, Any], limit: float) -> dict[str, Any] | None:
        """Send a request and wait for the answer; None, with the reason kept, if none comes."""
        assert self._process.stdin
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            line = self._line(limit)
        except TimeoutError:
            self.status, self.kind = "timed_out", "timeout"
            self.seconds = limit - _GRACE_SECONDS
            self.reason = f"passed its limit of {self.seconds:g} s and was killed"
            self.kill()
            return None
        except OSError:
            line = b""  # it died while it was spoken to
        try:
            answer = json.loads(line)
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            return answer
        self.kill(politely=not line)
        code = self._process.returncode
        died = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self.kind = "invalid_answer" if line else "crashed"
        self.reason = _NONSENSE if line else f"its process died: {died}"
        return None

    def _line(self, limit: float) -> bytes:
        """Read a line, or what there was before the end; TimeoutError after so many seconds."""
        assert self._process.stdout
        pipe, deadline, line = self._process.stdout.fileno(), time.monotonic() + limit, b""
        while not line.endswith(b"\n") and len(line) < _LONGEST_ANSWER:
            ready, _, _ = select.select([pipe], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                raise TimeoutError
            part = os.read(pipe, 2**16)
            if not part:
                break
            line += part
        return line

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


def _outcomes(answer: dict[str, Any], folder: Path, count: int) -> list[Outcome] | None:
    """Return what a child says its trials came to; None where that makes no sense."""
    try:
        outcomes = [_outcome(each, folder) for each in answer["outcomes"]]
    except (KeyError, TypeError, ValueError, OSError, SafetensorError):
        return None
    return outcomes if len(outcomes) == count else None


def _outcome(said: dict[str, Any], folder: Path) -> Outcome:
    seconds, peak = float(said["seconds"]), said["peak_bytes"]
    if said["status"] == "completed":
        file = folder / Path(said["file"]).name  # no path of the child's choosing
        return Outcome(load_reconstruction(file), "completed", None, seconds, peak)
    status: Literal["failed", "timed_out"] = (
        "timed_out" if said["status"] == "timed_out" else "failed"
    )
    kind = _told_kind(said.get("kind"))
    return Outcome(None, status, str(said["reason"]), seconds, None, kind=kind)


def _told_kind(said: object) -> FailureKind:
    """Return the kind of failure that a child tells; of one it makes up, that it makes no sense."""
    kinds: tuple[FailureKind, ...] = get_args(FailureKind)
    own = (kind for kind in kinds if kind not in ("defense", "model_refused"))  # the client's
    return next((kind for kind in own if kind == said), "invalid_answer")
