"""The small victims that a submission is asked on, and what an attack would see of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmark.cell import Cell, negotiate, run_stack
from benchmark.contract import ImageBatch, Stack
from benchmark.errors import DataUnavailable
from benchmark.federation import DefendedRound, Round
from benchmark.protocol import load_protocol
from benchmark.registry import Registry, Submission
from benchmark.running.inprocess import InProcess
from benchmark.toolbox.inverter import Inverter, InverterShape
from benchmark.tracks import Setting, load_setting
from benchmark.tracks.vision import VisionSetting
from benchmark.worker import Outcome, Verdict

_FOLDER = Path(__file__).parent / "victims"
VICTIMS = tuple(
    str(_FOLDER / f"{name}.yaml")
    for name in ("image_b", "image_a", "text", "image_batch", "image_local", "image_inverter")
)
FOR_ATTACKS = VICTIMS[-1:]
"""Victims whose updates are those of another, with more granted."""
OPEN = "none"
"""The defense that leaves everything as it is."""


class _Untrained(VisionSetting):
    """The inverter has random weights: what is promised of an answer, any weights can tell."""

    def inverter(self, seed: int, defense: Submission) -> nn.Module | DataUnavailable | None:
        return _untrained(self, seed)


_MADE: dict[tuple[str, int], Inverter] = {}


def _untrained(setting: VisionSetting, seed: int) -> Inverter:
    """Return one inverter a protocol and seed, the same object each time."""
    key = setting.protocol.name, seed
    if key not in _MADE:
        wanted, plain = setting.protocol.inverter, setting.round(seed)
        assert wanted is not None
        entries = {name: each.numel() for name, each in plain.update(0).items()}
        truth = plain.truth(0)
        assert isinstance(truth, ImageBatch)
        images = tuple(truth.images.shape)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            made = Inverter(InverterShape(entries, images, wanted.bins, wanted.hidden))
        _MADE[key] = made.requires_grad_(False)
    return _MADE[key]


@cache
def setting(name: str, device: torch.device) -> Setting:
    """Load a victim's data, by the name or the file of its protocol; nothing is downloaded."""
    protocol = load_protocol(name)
    if getattr(protocol, "inverter", None) is not None:
        loaded: Any = _Untrained.load(protocol, None, device)  # type: ignore[arg-type]
        return loaded
    return load_setting(protocol, None, device)


@cache
def plain_round(name: str, device: torch.device) -> Round:
    """Return a victim's undefended round, under its first seed."""
    loaded = setting(name, device)
    return loaded.round(loaded.protocol.seeds[0])


def views(
    submission: Submission, registry: Registry, names: Sequence[str], device: torch.device
) -> Iterator[tuple[str, Verdict, Stack | None]]:
    """Yield, for every victim and defense in turn, whether an attack fits, and the stack it sees.

    The defenses are none and, on every victim, those that the attack says it knows.
    """
    adaptive = submission.manifest.adaptive_to
    for defense in (OPEN, *adaptive):
        (against, *_) = registry.find("defense", defense)
        for name in names:
            loaded, plain = setting(name, device), plain_round(name, device)
            cell = Cell(loaded.protocol, against, submission, loaded.protocol.seeds[0])
            shared = DefendedRound(plain, against.build(), against.label)
            keeper = _Keeper()
            verdict, defended = negotiate(cell, loaded, shared, keeper, 0)
            if verdict.status == "applies":
                run_stack(cell, loaded, defended, keeper, range(min(2, loaded.protocol.trials)))
            yield f"{loaded.protocol.name} x {against.label}", verdict, keeper.stack


class _Keeper(InProcess):
    """A worker that keeps what an attack would see, and answers nothing."""

    def __init__(self) -> None:
        self.stack: Stack | None = None

    def reconstruct(self, submission: Submission, stack: Stack) -> list[Outcome]:
        """Keep the stack."""
        self.stack = stack
        return [Outcome(None, "failed", "kept", 0.0, None)] * len(stack)
