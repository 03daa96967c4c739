"""The sandbox's child: `python -m benchmark.running.child` speaks JSON lines with its parent."""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import IO, Any

import torch
from torch import nn

from benchmark.cell import Outcome
from benchmark.contract import Attack, Observation, Stack, Victim
from benchmark.errors import BenchmarkError, NotApplicable, PluginError
from benchmark.registry import Manifest, Submission
from benchmark.running.exchange import (
    PARAMETERS,
    load_network,
    load_observation,
    save_parameters,
    save_reconstruction,
)
from benchmark.running.inprocess import attempt, corruption, loops, verdict
from benchmark.running.memory import resident
from benchmark.toolbox.inverter import Inverter


def main() -> None:
    """Serve the parent until it closes the pipe."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what a submission prints does not reach the parent's pipe
    requests = sys.stdin.buffer
    start = json.loads(requests.readline())
    torch.set_num_threads(start["threads"])
    try:
        attack = _attack(start)
    except BenchmarkError as error:
        _say(answers, {"error": str(error)})
        return
    _say(answers, {"ready": True})
    with suppress(BrokenPipeError):
        _serve(requests, answers, attack, start)
    shutil.rmtree(start["exchange"], ignore_errors=True)  # as a parent that was killed cannot


def _serve(requests: IO[bytes], answers: IO[bytes], attack: Attack, start: dict[str, Any]) -> None:
    device = torch.device(start["device"])
    models: dict[str, nn.Module] = {}
    for line in requests:
        request = json.loads(line)
        models = {
            file: models[file] if file in models else load_network(Path(file), device)
            for file in request["models"]
        }
        model, *granted = models.values()
        assert isinstance(model, Victim)
        frozen = [network.requires_grad_(False) for network in granted]
        inverter = next((each for each in frozen if isinstance(each, Inverter)), None)
        network = next((each for each in frozen if each is not inverter), None)
        files = [Path(file) for file in request["observations"]]
        stack = Stack([load_observation(file, model, device, network, inverter) for file in files])
        if request["what"] == "corrupt":
            _say(answers, _corrupted(attack, start["manifest"]["name"], stack[0], request))
            continue
        if request["what"] == "applies":
            _say(answers, asdict(verdict(attack, stack[0])))
            continue
        folder, outcomes = Path(request["answers"]), _limited(attack, stack)
        _say(answers, {"outcomes": [_sent(o, folder, i) for i, o in enumerate(outcomes)]})


def _attack(start: dict[str, Any]) -> Attack:
    manifest = Manifest.model_validate(start["manifest"])
    arguments = tuple((key, value) for key, value in start["arguments"])
    attack: Attack = Submission(manifest, Path(start["folder"]), arguments).build()
    return attack


def _corrupted(
    attack: Attack, label: str, seen: Observation, request: dict[str, Any]
) -> dict[str, Any]:
    """Write the parameters that a malicious attack sends, and return what became of it."""
    try:
        chosen = corruption(attack, label, seen.model, seen.knowledge, seen.generator)
        save_parameters(chosen, Path(request["answers"]) / PARAMETERS)
    except NotApplicable as reason:
        return {"status": "not_applicable", "reason": str(reason)}
    except PluginError as error:
        return {"status": "failed", "reason": str(error)}
    return {"status": "corrupted"}


def _limited(attack: Attack, stack: Stack) -> list[Outcome]:
    """Run a stack with the memory that its trials may take above what the child holds now."""
    at_once = 1 if loops(attack) else len(stack)
    allowed = stack[0].budget.memory_bytes * at_once
    held = resident("VmData")
    before = resource.getrlimit(resource.RLIMIT_DATA)
    if held is not None:
        resource.setrlimit(resource.RLIMIT_DATA, (held + allowed, before[1]))
    try:
        outcomes = attempt(attack, stack)
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
    return [_memory_said(outcome, stack[0].budget.memory_bytes) for outcome in outcomes]


def _memory_said(outcome: Outcome, limit: int) -> Outcome:
    if outcome.kind != "out_of_memory":
        return outcome
    return replace(outcome, reason=f"passed its memory limit of {limit // 2**20} MiB a trial")


def _sent(outcome: Outcome, folder: Path, index: int) -> dict[str, Any]:
    """Write an outcome's reconstruction to a file and return the outcome as plain data."""
    file = None
    if outcome.reconstruction is not None:
        path = folder / f"answer-{index}.safetensors"
        try:
            save_reconstruction(outcome.reconstruction, path)
            file = str(path)
        except (PluginError, RuntimeError, TypeError, ValueError) as error:
            said, seconds = str(error), outcome.seconds
            outcome = Outcome(None, "failed", said, seconds, None, kind="invalid_answer")
    return {
        "status": outcome.status,
        "kind": outcome.kind,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "peak_bytes": outcome.peak_bytes,
        "file": file,
    }


def _say(pipe: IO[bytes], answer: dict[str, Any]) -> None:
    pipe.write(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main()
