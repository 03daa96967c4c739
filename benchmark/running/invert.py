"""Trains the inverters of a protocol: updates of public data, through a defense, back to images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log10
from pathlib import Path

import torch
from torch import Tensor

from benchmark.contract import Defense, ImageBatch, Update, Victim
from benchmark.data import ImageSet, load_images
from benchmark.errors import NotApplicable, ProtocolError
from benchmark.federation import DefendedRound, Round
from benchmark.protocol import InverterSettings, Protocol, VisionProtocol
from benchmark.registry import Submission
from benchmark.running.bars import bar
from benchmark.seeds import Key, generator
from benchmark.toolbox.inverter import Example, Inverter, InverterShape, fit
from benchmark.tracks import VisionSetting
from benchmark.tracks.setting import client

_OWN = Key(b"inverter")  # the attacker's, so that no draw of a client's is among them
_HELD_OUT = 0.1  # share of the public images, and of the updates


def train_inverters(
    protocol: Protocol,
    defenses: Sequence[Submission],
    seeds: tuple[int, ...] | None,
    mirror: Path | None,
    device: torch.device,
) -> Iterator[str]:
    """Train the inverters that are not in the cache, and yield a line for each.

    Args:
        protocol: one that grants an inverter.
        defenses: through which the updates come, an inverter each.
        seeds: of whose victims; None is the protocol's.
        mirror: of data and of weights.
        device: where to train.

    Raises:
        ProtocolError: it grants none.
        DataUnavailable: the data, or the victim's weights, cannot be had here.
        BenchmarkError: the error is no number, or the cache cannot be written.
    """
    if not isinstance(protocol, VisionProtocol) or protocol.inverter is None:
        raise ProtocolError(f"{protocol.name} grants no trained_inverter; wanted the key inverter")
    setting = VisionSetting.load(protocol, mirror, device)
    public = load_images(protocol.data.entry, "train", protocol.data.size, mirror)
    for seed in protocol.seeds if seeds is None else seeds:
        plain = setting.round(seed)
        for defense in defenses:
            said, stage = f"{defense.label} x seed {seed}", setting.inverter_stage(seed, defense)
            if stage.file.is_file():
                yield f"{said}: {stage.file}, already there"
                continue
            try:
                source = _Source(protocol, plain, defense, public)
                inverter, error = source.trained(protocol.inverter, device)
            except NotApplicable as reason:
                yield f"{said}: not applicable: {reason}"
                continue
            stage.save(inverter)
            yield f"{said}: {-10 * log10(error):.2f} dB on held-out public images: {stage.file}"


@dataclass(frozen=True)
class _Source:
    """Where examples come from: the protocol's victim and clients, a defense, public images."""

    protocol: VisionProtocol
    plain: Round
    defense: Submission
    public: ImageSet

    def trained(self, settings: InverterSettings, device: torch.device) -> tuple[Inverter, float]:
        """Return a trained inverter, and its mean squared error on updates held out."""
        built: Defense = self.defense.build()
        model = DefendedRound(self.plain, built, self.defense.label).model
        draws = generator(self.plain.seed, self.protocol.name, "inverter", self.defense.label)
        order = torch.randperm(len(self.public.labels), generator=draws)
        apart = round(_HELD_OUT * len(order))
        tested = round(_HELD_OUT * settings.examples)
        counts = (settings.examples - tested, tested)
        batches = [
            self._batches(rows, count, draws)
            for rows, count in zip((order[apart:], order[:apart]), counts, strict=True)
        ]
        first = self._update(model, built, batches[0][0], 0)
        shape = InverterShape(
            {name: tensor.numel() for name, tensor in first.items()},
            tuple(batches[0][0].images.shape),
            settings.bins,
            settings.hidden,
        )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(torch.randint(2**62, (), generator=draws)))
            inverter = Inverter(shape).to(device)
        name = f"{self.protocol.name} x {self.defense.label}"
        with bar(f"{name}: updates", settings.examples) as advance:
            made, examples = 0, list[Example]()
            for part in batches:
                read: list[Tensor] = []
                for batch in part:
                    update = self._update(model, built, batch, made)
                    read.append(inverter.read(update))
                    made += 1
                    advance("")
                images = torch.stack([batch.images for batch in part]).to(device)
                examples.append(Example(torch.stack(read), images))
        with bar(f"{name}: epochs", settings.epochs) as advance:
            given, held_out = examples
            error = fit(
                inverter, given, held_out, settings.epochs, lambda least: advance(f"{least:.4f}")
            )
        return inverter.requires_grad_(False), error

    def _batches(self, rows: Tensor, count: int, draws: torch.Generator) -> list[ImageBatch]:
        """Return batches of these images: all of them once before any comes again."""
        size = self.protocol.federation.examples
        passes = -(-count * size // len(rows))
        orders = [rows[torch.randperm(len(rows), generator=draws)] for _ in range(passes)]
        every = torch.cat(orders)[: count * size].view(count, size)
        return [ImageBatch(self.public.images[one], self.public.labels[one]) for one in every]

    def _update(self, model: Victim, defense: Defense, batch: ImageBatch, number: int) -> Update:
        """Return what a client would send of a batch, by draws of the attacker's own."""
        name = f"{self.protocol.name} inverter {number}"
        public = Round(name, self.plain.seed, model, [batch], client(self.protocol.federation))
        return _Hardened(public, defense, self.defense.label, _OWN).update(0)


class _Hardened(DefendedRound):
    """A round whose victim has been hardened already, by draws that are the protocol's."""

    @property
    def model(self) -> Victim:
        """The victim."""
        return self.plain.victim
