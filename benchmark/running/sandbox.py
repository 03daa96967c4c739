"""Runs attacks in a child process that can be killed: wall clock and memory are enforced.

The child is given networks and observations as safetensors files and answers over a pipe, in JSON
lines and the bytes of safetensors: no pickle either way. It inherits no environment but what Python
and torch need to start, and it is a separate address space: the truth is not in it. Other people's
code is kept behind a wall besides (`wall.py`). What a child says is not trusted: an answer that
makes no sense is a failure of its trial, and this process's clock times it.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmark.contract import Budget, Knowledge, Observation, Stack, Update, Victim
from benchmark.errors import NotApplicable, PluginError
from benchmark.records import Wall
from benchmark.registry import Submission
from benchmark.running.answers import unpack_parameters, unpack_reconstruction
from benchmark.running.channel import Answer
from benchmark.running.exchange import save_model, save_observation
from benchmark.running.heard import Heard
from benchmark.running.limits import machine_bytes
from benchmark.running.process import NONSENSE, STARTING_SECONDS, Child
from benchmark.running.scratch import Scratch
from benchmark.running.wall import demand, trouble
from benchmark.victims import ImageSpec
from benchmark.worker import Outcome, Verdict

_GRACE_SECONDS = 5.0  # the child's own alarm comes first and says more
_SLACK_SECONDS = 1.0  # an observation is read, and an answer sent, within the attack's time
_BYTES_A_SECOND = 2**28
_MOST_KILLS = 3
"""Trials in a row on which a process may die before a cell stops."""
_AT_FIRST = 5 * 2**30
"""Bytes of memory for a child whose budget is not known yet, of 4 GiB in most protocols."""
_OWN_BYTES = 2**29  # the harness's in a child, beside what it is given
_NUMBERS = 2**20  # in an answer, beside the pixels
_EXAMPLES = 256  # in a batch whose size is not known


class Sandbox:
    """The worker that runs attacks in children, one child a submission, kept while it behaves.

    Use as a context: leaving it ends the children and removes their files, and so does the end of
    this process, whichever way it comes. See `worker.Worker`.

    Args:
        device: where victims live.
        trust: whether other people's code may run without a wall.
        heard: takes what attacks print, and what their failures raised in full.
    """

    def __init__(
        self, device: torch.device, *, trust: bool = False, heard: Heard | None = None
    ) -> None:
        self._device, self._trust, self._heard = device, trust, heard or Heard()
        self._scratch: Scratch | None = None
        self._children: dict[str, Child] = {}
        self._models: dict[nn.Module, str] = {}
        self._kills: Counter[str] = Counter()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._children.values():
            child.kill()
        if self._scratch is not None:
            self._scratch.remove()

    @property
    def wall(self) -> Wall:
        """What stands round the children."""
        return "bubblewrap" if self._walls else "absent"

    @property
    def _walls(self) -> bool:
        return not self._trust and trouble() is None

    @property
    def _files(self) -> Scratch:
        """Where files lie; made when first wanted."""
        if self._scratch is None:
            self._scratch = Scratch()
        return self._scratch

    def load(self, submission: Submission) -> None:
        """Have a child import an attack, or raise PluginError."""
        child = self._child(submission, _AT_FIRST)
        if child.unfit:
            raise PluginError(child.reason)

    def corrupt(
        self, submission: Submission, model: Victim, known: Knowledge, draws: torch.Generator
    ) -> dict[str, Tensor]:
        """Have a child choose the parameters to send."""
        weights = model.weights()
        stack = Stack([Observation(Update({}), model, known, Budget(STARTING_SECONDS, 0), draws)])
        largest = 2 * sum(weight.nbytes for weight in weights.values()) + _NUMBERS
        answered, child = self._ask(submission, "corrupt", stack, largest)
        if answered is None:
            raise PluginError(f"{submission.label}: corrupt: {child.reason}")
        answer, data = answered[0]
        if answer.status == "not_applicable":
            raise NotApplicable(str(answer.reason))
        if answer.status != "corrupted":
            raise PluginError(answer.reason or f"{submission.label}: corrupt: {NONSENSE}")
        try:
            return unpack_parameters(data, weights.keys())
        except ValueError as error:
            raise PluginError(f"{submission.label}: corrupt: sent no parameters") from error

    def applies(self, submission: Submission, seen: Observation) -> Verdict:
        """Have a child ask its attack whether it fits."""
        self._kills[submission.label] = 0  # a cell begins
        answered, child = self._ask(submission, "applies", Stack([seen]))
        if answered is None:
            return Verdict("failed", child.reason, kind=child.kind)
        answer, _ = answered[0]
        if answer.status == "applies":
            return Verdict("applies", None)
        if answer.status == "not_applicable":
            return Verdict("not_applicable", answer.reason or "", answer.missing)
        kind = answer.kind or "invalid_answer"
        return Verdict("failed", answer.reason or NONSENSE, kind=kind)

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Have a child run its attack on a stack; on each trial alone where that fails."""
        outcomes: list[Outcome] = []
        if len(stack) > 1 and not self._child(submission, 0).loops:
            outcomes = self._run(submission, stack)
        if not outcomes or any(outcome.status != "completed" for outcome in outcomes):
            outcomes = [self._alone(submission, stack[i : i + 1]) for i in range(len(stack))]
        return outcomes

    def _alone(self, submission: Submission, stack: Stack) -> Outcome:
        """Run a trial, but none where its process was killed on too many before it."""
        if self._kills[submission.label] >= _MOST_KILLS:
            said = f"not run: its process was killed on {_MOST_KILLS} trials in a row"
            return Outcome(None, "failed", said, 0.0, None, kind="crashed")
        (outcome,) = self._run(submission, stack)
        return outcome

    def _run(self, submission: Submission, stack: Stack) -> list[Outcome]:
        answered, child = self._ask(submission, "reconstruct", stack, _largest(stack[0]))
        count, budget = len(stack), stack[0].budget.seconds
        seconds = child.seconds / count
        if answered is None:
            if count == 1:
                self._kills[submission.label] += 1
            died = Outcome(None, child.status, child.reason, seconds, None, kind=child.kind)
            return [died] * count
        self._kills[submission.label] = 0
        if seconds > budget + _SLACK_SECONDS + _nbytes(stack) / _BYTES_A_SECOND:
            late = f"passed its limit of {budget:g} s a trial"
            return [Outcome(None, "timed_out", late, seconds, None, kind="timeout")] * count
        return [_outcome(answer, data, seconds) for answer, data in answered]

    def _child(self, submission: Submission, needed: int) -> Child:
        """Return the submission's child; a new one if the last died or may take too little."""
        label = submission.label
        needed = min(needed, machine_bytes())
        child = self._children.get(label)
        if child is not None and (child.unfit or (child.alive and needed <= child.allowed)):
            return child
        if child is not None:
            child.kill()
        if not self._trust:
            demand(submission)
        exchange = self._files.for_child()
        allowed = max(needed, min(_AT_FIRST, machine_bytes()))
        child = self._children[label] = Child(
            submission, self._device, exchange, allowed=allowed, wall=self._walls
        )
        self._heard.add(child.ear.take())
        return child

    def _ask(
        self, submission: Submission, what: str, stack: Stack, largest: int = 0
    ) -> tuple[list[tuple[Answer, memoryview]] | None, Child]:
        """Ask a child about a stack; None where it did not answer, and the child says why."""
        count = len(stack) if what == "reconstruct" else 1
        needed = stack[0].budget.memory_bytes * len(stack) + 3 * _nbytes(stack) + _OWN_BYTES
        child = self._child(submission, needed)
        if child.unfit or not self._shown(child, stack.networks):
            return None, child
        with _written(stack, child.exchange) as files:
            request = {"what": what, "observations": files}
            seconds = len(stack) * stack[0].budget.seconds
            answered = child.ask(
                request, seconds, grace=_GRACE_SECONDS, count=count, largest=largest
            )
            self._heard.add(child.ear.take())
            return answered, child

    def _shown(self, child: Child, networks: Sequence[nn.Module]) -> bool:
        """Have a child read a stack's networks, before the clock of its attack runs."""
        for network in self._models.keys() - set(networks):
            name = self._models.pop(network)
            for path in self._files.folder.glob(f"*/{name}"):
                path.unlink()
        try:
            names = [self._model_file(network) for network in networks]
        except PluginError as error:
            child.reason = str(error)
            return False
        for name in names:
            if not (child.exchange / name).exists():
                os.link(self._files.folder / "models" / name, child.exchange / name)
        files = [str(child.exchange / name) for name in names]
        if files != child.models:
            child.models = files
            return child.ask({"what": "models", "models": files}, STARTING_SECONDS) is not None
        return True

    def _model_file(self, network: nn.Module) -> str:
        """Return the name of a network's file, which is written once."""
        if network not in self._models:
            folder = self._files.folder / "models"
            folder.mkdir(exist_ok=True)
            path = Path(tempfile.mkdtemp(dir=folder)).with_suffix(".safetensors")
            save_model(network, path)
            path.chmod(0o644)
            self._models[network] = path.name
        return self._models[network]


@contextmanager
def _written(stack: Stack, folder: Path) -> Iterator[list[str]]:
    """Write the observations of a stack, for as long as they are looked at."""
    files = [folder / f"{place}.safetensors" for place in range(len(stack))]
    try:
        for seen, file in zip(stack, files, strict=True):
            save_observation(seen, file)
            file.chmod(0o644)
        yield [str(file) for file in files]
    finally:
        for file in files:
            file.unlink(missing_ok=True)


def _nbytes(stack: Stack) -> int:
    """Return roughly the bytes of what a child reads: each network, each trial's updates."""
    networks = sum(t.nbytes for network in stack.networks for t in network.state_dict().values())
    return networks + sum((1 + len(seen.later)) * seen.update.nbytes for seen in stack)


def _largest(seen: Observation) -> int:
    """Return the bytes that an answer on a trial may have, with room to be of a wrong type."""
    spec, count = seen.model.spec, seen.knowledge.batch_size or _EXAMPLES
    if isinstance(spec, ImageSpec):
        return 2 * 8 * count * spec.channels * spec.size**2 + _NUMBERS
    return 2 * 8 * count * int(getattr(spec, "length", 0)) + _NUMBERS


def _outcome(answer: Answer, data: memoryview, seconds: float) -> Outcome:
    """Return what an answer says of a trial; only the seconds are ours."""
    if answer.status == "completed":
        try:
            made = unpack_reconstruction(data)
        except ValueError:
            return Outcome(None, "failed", NONSENSE, seconds, None, kind="invalid_answer")
        return Outcome(made, "completed", None, seconds, answer.peak_bytes)
    reason, kind = answer.reason or NONSENSE, answer.kind or "invalid_answer"
    if answer.status == "timed_out":
        return Outcome(None, "timed_out", reason, seconds, None, kind="timeout")
    return Outcome(None, "failed", reason, seconds, answer.peak_bytes, kind=kind)
