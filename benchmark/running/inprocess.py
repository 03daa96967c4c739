"""Runs an attack in this process: quick, with a wall-clock limit for Python code.

A method that hangs inside one native call, or takes too much memory, is stopped only by the
sandbox.
"""

from __future__ import annotations

import copy
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor
from torch._C import _len_torch_function_stack, _pop_torch_function_stack

from benchmark.contract import (
    Attack,
    Grant,
    Knowledge,
    MaliciousAttack,
    Observation,
    Reconstruction,
    Stack,
    Victim,
)
from benchmark.errors import NotApplicable, PluginError, WithheldError
from benchmark.identity import ROOT
from benchmark.records import FailureKind, Status
from benchmark.registry import Submission
from benchmark.running.memory import Peak
from benchmark.worker import Outcome, Verdict

_BENCHMARK = ROOT / "benchmark"


class OutOfTime(BaseException):
    """The wall-clock limit; no `except Exception` of a submission swallows it."""


class InProcess:
    """The worker that calls attacks directly; see `worker.Worker`.

    Args:
        tells: whether what a failure raised is printed in full, on standard error.
    """

    _tells = False

    def __init__(self, *, tells: bool = False) -> None:
        self._tells = tells

    def load(self, submission: Submission) -> None:
        """Import an attack."""
        submission.build()

    def corrupt(
        self, submission: Submission, model: Victim, known: Knowledge, draws: torch.Generator
    ) -> dict[str, Tensor]:
        """Have a malicious attack choose the parameters to send."""
        return corruption(submission.build(), submission.label, model, known, draws)

    def applies(self, submission: Submission, seen: Observation) -> Verdict:
        """Ask an attack whether it fits."""
        return verdict(submission.build(), seen, tells=self._tells)

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Run an attack on a stack."""
        attack: Attack = submission.build()
        return attempt(attack, stack, tells=self._tells)


def corruption(
    attack: Attack, label: str, model: Victim, known: Knowledge, draws: torch.Generator
) -> dict[str, Tensor]:
    """Return the parameters that a malicious attack sends, by name.

    Raises:
        PluginError: it failed, in one line.
        NotApplicable: it cannot corrupt such a victim.
    """
    assert isinstance(attack, MaliciousAttack)
    try:
        sent = attack.corrupt(copy.deepcopy(model), known, draws)
        assert isinstance(sent, Victim), "the model sent is no victim"
        return {name: weight.detach() for name, weight in sent.weights().items()}
    except NotApplicable:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(f"{label}: corrupt: {described(error)}") from error


def verdict(attack: Attack, seen: Observation, *, tells: bool = False) -> Verdict:
    """Ask an attack whether it fits; it sees shapes, and no values; see `attempt`."""
    try:
        with _wall_clock(seen.budget.seconds):
            needs = sorted(map(Grant, attack.needs))
            missing = tuple(need for need in needs if getattr(seen.knowledge, need.value) is None)
            if not missing:
                attack.applies(replace(seen, update=seen.update.shapes))
    except (NotApplicable, WithheldError) as reason:
        return Verdict("not_applicable", str(reason))
    except OutOfTime:
        said = f"applies: passed its limit of {seen.budget.seconds:g} s"
        return Verdict("failed", said, kind="timeout")
    except (Exception, SystemExit) as error:
        _tell(tells)
        return Verdict("failed", f"applies: {described(error)}", kind=kind_of(error))
    if missing:
        said = f"needs {', '.join(missing)}, which the protocol does not grant"
        return Verdict("not_applicable", said, missing)
    return Verdict("applies", None)


def attempt(
    attack: Attack, stack: Stack, *, apart: bool = True, tells: bool = False
) -> list[Outcome]:
    """Run an attack on a stack; where that fails, on each trial alone.

    So one trial's crash does not take its neighbours. A method that only loops over trials is run
    and timed trial by trial from the start.

    Args:
        attack: the method.
        stack: the trials.
        apart: whether a stack that fails is run again; else its failure is that of all.
        tells: whether what a failure raised is printed in full, on standard error.
    """
    before = stack.versions()
    with modes_kept(stack), Peak(stack.model) as peak:
        outcomes = [] if loops(attack) else _together(attack, stack, tells)
        failed = any(outcome.status != "completed" for outcome in outcomes)
        if not outcomes or (apart and failed and len(stack) > 1):
            outcomes = [_together(attack, stack[i : i + 1], tells)[0] for i in range(len(stack))]
    outcomes = [replace(outcome, peak_bytes=peak.bytes) for outcome in outcomes]
    if stack.versions() != before:
        said = "changed the observation in place"
        wrote = Outcome(None, "failed", said, 0.0, None, kind="mutated")
        return [replace(wrote, seconds=o.seconds, peak_bytes=o.peak_bytes) for o in outcomes]
    return outcomes


def loops(attack: Attack) -> bool:
    """Tell whether an attack takes the trials of a stack one by one."""
    return type(attack).reconstruct_stack is Attack.reconstruct_stack


def _together(attack: Attack, stack: Stack, tells: bool) -> list[Outcome]:
    limit = stack[0].budget.seconds
    states = [seen.generator.get_state() for seen in stack]
    answers: list[Reconstruction] = []
    status: Status = "failed"
    kind: FailureKind = "invalid_answer"
    started = time.perf_counter()
    try:
        with _torch_kept(), _wall_clock(limit * len(stack)):
            answers = attack.reconstruct_stack(stack)
        reason = _broken_contract(answers, stack)
    except OutOfTime:
        status, kind, reason = "timed_out", "timeout", f"passed its limit of {limit:g} s a trial"
    except (Exception, SystemExit) as error:
        _tell(tells)
        kind, reason = kind_of(error), described(error)
    seconds = (time.perf_counter() - started) / len(stack)
    if reason is None:
        return [Outcome(answer, "completed", None, seconds, None) for answer in answers]
    for seen, state in zip(stack, states, strict=True):
        seen.generator.set_state(state)  # a trial run again alone draws the same numbers
    return [Outcome(None, status, reason, seconds, None, kind=kind)] * len(stack)


def _broken_contract(answers: list[Reconstruction], stack: Stack) -> str | None:
    if not isinstance(answers, list) or len(answers) != len(stack):
        came = len(answers) if isinstance(answers, list) else type(answers).__name__
        return f"returned {came} for {len(stack)} trials; wanted a list of one answer each"
    if wrong := [answer for answer in answers if not isinstance(answer, Reconstruction)]:
        return f"returned a {type(wrong[0]).__name__}; wanted a Reconstruction"
    return None


@contextmanager
def modes_kept(stack: Stack) -> Iterator[None]:
    """Give the networks their modes back: attacks freeze parameters as a matter of course."""
    trained = [(tensor, tensor.requires_grad) for tensor in stack.network_tensors()]
    modes = [(m, m.training) for network in stack.networks for m in network.modules()]
    try:
        yield
    finally:
        for parameter, requires_grad in trained:
            parameter.requires_grad_(requires_grad)
        for module, training in modes:
            module.training = training


@contextmanager
def _torch_kept() -> Iterator[None]:
    """Leave torch's modes as they were: the limit may strike where one is about to be left."""
    enabled, entered = torch.is_grad_enabled(), _len_torch_function_stack()
    try:
        yield
    finally:
        while _len_torch_function_stack() > entered:
            _pop_torch_function_stack()
        torch.set_grad_enabled(enabled)


@contextmanager
def _wall_clock(seconds: float) -> Iterator[None]:
    """Raise OutOfTime in the main thread after so many seconds; elsewhere there is no limit."""
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    previous = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def kind_of(error: BaseException) -> FailureKind:
    """Return what kind of failure an exception is; torch has no type for memory it cannot have."""
    torchs = isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    of_memory = isinstance(error, MemoryError | torch.OutOfMemoryError) or torchs
    return "out_of_memory" if of_memory else "crashed"


def _tell(wanted: bool) -> None:
    if wanted:
        traceback.print_exc()


def described(error: BaseException) -> str:
    """Return an exception in one line, with the place of the submission's code it came from."""
    said = str(error).strip().splitlines()
    frames = traceback.extract_tb(sys.exc_info()[2])
    here = Path(__file__).name
    inside = [frame for frame in frames if Path(frame.filename).name != here]
    own = [frame for frame in inside if "site-packages" not in frame.filename]
    theirs = [frame for frame in own if not Path(frame.filename).is_relative_to(_BENCHMARK)]
    places = (f"{Path(f.filename).name}:{f.lineno}" for f in (*theirs[-1:], *own[-1:]))
    where = ", in ".join(dict.fromkeys(places))  # the submission's line, and what it called
    where = f" ({where})" if where else ""
    return f"{type(error).__name__}: {said[0] if said else ''}{where}"
