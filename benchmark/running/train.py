"""Makes the weights of a protocol's training stage, a victim a seed, on the public split alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchmark.data import ImageSet, load_images
from benchmark.errors import ProtocolError
from benchmark.protocol import Protocol, VisionProtocol
from benchmark.running.bars import bar
from benchmark.tracks import VisionSetting
from benchmark.victims import ImageVictim, Stage, accuracy


def train(
    protocol: Protocol, seeds: tuple[int, ...] | None, mirror: Path | None, device: torch.device
) -> Iterator[str]:
    """Train the victims of a protocol that are not in the cache, and yield a line for each.

    Args:
        protocol: one that states a training stage.
        seeds: whose victims; None is the protocol's.
        mirror: of data and of weights.
        device: where to train.

    Raises:
        ProtocolError: it states no training stage.
        DataUnavailable: the data, or the weights that training begins with, cannot be had here.
        BenchmarkError: the loss is no longer finite, or the cache cannot be written.
    """
    if not isinstance(protocol, VisionProtocol) or protocol.victim.trained_on is None:
        said = "states no training stage; wanted victim.trained_on and victim.epochs"
        raise ProtocolError(f"{protocol.name} {said}, which victims of images take")
    setting = VisionSetting.load(protocol, mirror, device)
    public = load_images(protocol.data.name, "train", protocol.data.size, mirror)
    for seed in protocol.seeds if seeds is None else seeds:
        stage = setting.stage(seed)
        had = stage.file.is_file()
        if not had:
            _make(stage, public, mirror, device, f"{protocol.name} x seed {seed}")
        victim = ImageVictim.of(setting.round(seed).victim)
        right = accuracy(victim, setting.data.images, setting.data.labels)
        told = f"test accuracy {right:.1%} of {len(setting.data.labels)} images"
        yield f"seed {seed}: {told}: {stage.file}{', already there' if had else ''}"


def _make(
    stage: Stage, public: ImageSet, mirror: Path | None, device: torch.device, name: str
) -> None:
    """Train and keep one victim, a bar on a terminal."""
    victim = stage.untrained(mirror).to(device)
    with bar(name, stage.steps(len(public.labels))) as advance:

        def after_step(nats: float) -> None:
            advance(f"steps, loss {nats:.3f}")

        stage.fit(victim, public.images, public.labels, after_step)
    stage.save(victim)
