"""The sandbox's child, which `launch.py` starts: it answers its parent, see `channel.py`."""

from __future__ import annotations

import json
import os
import resource
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, get_args

import torch
from torch import nn

from benchmark.contract import Attack, Defense, Observation, Stack, Victim
from benchmark.errors import BenchmarkError, NotApplicable, PluginError
from benchmark.manifest import Manifest
from benchmark.registry import Submission
from benchmark.running.answers import pack_parameters, pack_reconstruction
from benchmark.running.channel import Answer, ChildsKind, one_line, say
from benchmark.running.defense_child import serve_defense
from benchmark.running.device import settled
from benchmark.running.exchange import load_network, load_observation
from benchmark.running.inprocess import attempt, corruption, loops, verdict
from benchmark.running.limits import limit
from benchmark.running.memory import resident
from benchmark.toolbox.inverter import Inverter
from benchmark.worker import Outcome, Verdict


def main() -> None:
    """Serve the parent until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a submission prints does not reach the parent's pipe
    requests = open(0, "rb", closefd=False)
    start = json.loads(requests.readline())
    torch.set_num_threads(start["threads"])
    device = settled(start["device"])
    gpu = device.type == "cuda"
    limit(start["allowed"], threads=start["threads"], gpu=gpu, walled=start["walled"])
    try:
        made = _made(start)
    except BenchmarkError as error:
        say(answers, Answer(status="failed", reason=one_line(str(error))))
        return
    with suppress(BrokenPipeError):
        if isinstance(made, Defense):
            serve_defense(requests, answers, made, device)
            return
        say(answers, Answer(status="ready", loops=loops(made)))
        _serve(requests, answers, made, start)


def _serve(requests: IO[bytes], answers: IO[bytes], attack: Attack, start: dict[str, Any]) -> None:
    device, label = settled(start["device"]), start["manifest"]["name"]
    files: list[str] = []
    models: dict[str, nn.Module] = {}
    for line in requests:
        request = json.loads(line)
        if request["what"] == "models":
            files = request["models"]
            models = {file: _kept(models, file, device) for file in files}
            say(answers, Answer(status="ready"))
            continue
        stack = _stack(request["observations"], [models[file] for file in files], device)
        if request["what"] == "corrupt":
            say(answers, *_corrupted(attack, label, stack[0]))
        elif request["what"] == "applies":
            say(answers, _applies(verdict(attack, stack[0], tells=True)))
        else:
            outcomes = _limited(attack, stack)
            for outcome in outcomes:
                say(answers, *_sent(outcome))
            if any(outcome.kind == "mutated" for outcome in outcomes):
                models = {file: load_network(Path(file), device) for file in files}


def _kept(models: dict[str, nn.Module], file: str, device: torch.device) -> nn.Module:
    return models[file] if file in models else load_network(Path(file), device)


def _stack(files: list[str], networks: list[nn.Module], device: torch.device) -> Stack:
    model, *granted = networks
    assert isinstance(model, Victim)
    frozen = [network.requires_grad_(False) for network in granted]
    inverter = next((each for each in frozen if isinstance(each, Inverter)), None)
    network = next((each for each in frozen if each is not inverter), None)
    return Stack([load_observation(Path(f), model, device, network, inverter) for f in files])


def _made(start: dict[str, Any]) -> Attack | Defense:
    manifest = Manifest.model_validate(start["manifest"])
    arguments = tuple((key, value) for key, value in start["arguments"])
    made: Attack | Defense = Submission(manifest, Path(start["folder"]), arguments).build()
    return made


def _corrupted(
    attack: Attack, label: str, seen: Observation
) -> tuple[Answer, Sequence[memoryview]]:
    """Return the parameters that a malicious attack sends, or why there are none."""
    try:
        chosen = corruption(attack, label, seen.model, seen.knowledge, seen.generator)
        return Answer(status="corrupted"), pack_parameters(chosen)
    except NotApplicable as reason:
        return Answer(status="not_applicable", reason=one_line(str(reason))), ()
    except PluginError as error:
        return Answer(status="failed", reason=one_line(str(error))), ()


def _applies(said: Verdict) -> Answer:
    reason = None if said.reason is None else one_line(said.reason)
    kind = _own(said.kind)
    if said.status == "unavailable":
        raise AssertionError("an attack has no say in what is available")
    return Answer(status=said.status, reason=reason, missing=said.missing, kind=kind)


def _limited(attack: Attack, stack: Stack) -> list[Outcome]:
    """Run a stack with the memory that its trials may take above what the child holds now."""
    held = resident("VmData")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if held is not None:
        most = held + stack[0].budget.memory_bytes * len(stack)
        if before[1] != resource.RLIM_INFINITY:
            most = min(most, before[1])
        resource.setrlimit(resource.RLIMIT_DATA, (most, before[1]))
    try:
        outcomes = attempt(attack, stack, apart=False, tells=True)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    return [_memory_said(outcome, stack[0].budget.memory_bytes) for outcome in outcomes]


def _memory_said(outcome: Outcome, limit: int) -> Outcome:
    if outcome.kind != "out_of_memory":
        return outcome
    return replace(outcome, reason=f"passed its memory limit of {limit // 2**20} MiB a trial")


def _sent(outcome: Outcome) -> tuple[Answer, Sequence[memoryview]]:
    """Return an outcome as an answer, with its reconstruction's bytes."""
    peak = outcome.peak_bytes
    if outcome.reconstruction is not None:
        try:
            data = pack_reconstruction(outcome.reconstruction)
            return Answer(status="completed", peak_bytes=peak), data
        except (PluginError, RuntimeError, TypeError, ValueError) as error:
            outcome = replace(outcome, status="failed", reason=str(error), kind="invalid_answer")
    late = outcome.status == "timed_out"
    reason, kind = one_line(outcome.reason or ""), _own(outcome.kind)
    told = Answer(
        status="timed_out" if late else "failed", reason=reason, kind=kind, peak_bytes=peak
    )
    return told, ()


def _own(kind: str | None) -> ChildsKind | None:
    """Return a kind of failure as an attack's."""
    kinds: tuple[ChildsKind, ...] = get_args(ChildsKind)
    return next((each for each in kinds if each == kind), None)
