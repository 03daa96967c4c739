"""The vision track: images, read by an ImageVictim."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.contract import DataStatistics, Grant, ImageBatch, Reconstruction, fault
from benchmark.data import ImageSet, find_weights, load_images
from benchmark.errors import DataUnavailable, ProtocolError
from benchmark.federation import Round, canary_images, draw_images
from benchmark.metrics import LPIPS_URLS, Candidates, ImageScorer, candidate_rows, pixels
from benchmark.protocol import VisionProtocol, protocol_files
from benchmark.registry import Submission, exactly
from benchmark.seeds import PUBLIC, Key, derive_seed, generator
from benchmark.tracks.inverters import InverterStage
from benchmark.tracks.setting import Setting, client
from benchmark.victims import ImageSettings, ImageSpec, ImageVictim, Stage, build, layer_inputs

_LEVELS = 256  # of a pixel of 8 bits
_PUBLIC_IMAGES = 1000  # of the public split, drawn, where they are granted


@dataclass(frozen=True)
class VisionSetting(Setting):
    """What all cells of a protocol of images share; see `Setting`."""

    protocol: VisionProtocol
    data: ImageSet
    statistics: DataStatistics
    scorer: ImageScorer
    mirror: Path | None
    device: torch.device
    public_network: nn.Module | DataUnavailable | None = None
    public_images: ImageBatch | None = None

    @classmethod
    def load(
        cls, protocol: VisionProtocol, mirror: Path | None, device: torch.device
    ) -> VisionSetting:
        """Load a protocol's data and its public network.

        Raises:
            DataUnavailable: the data set cannot be had here.
        """
        chosen = protocol.data
        data = load_images(chosen.entry, chosen.split, chosen.size, mirror)
        others = load_images(chosen.entry, "train", chosen.size, mirror)
        statistics = others.statistics
        if Grant.PIXEL_LEVELS in protocol.threat.grants and not _in_levels(data.images[:1]):
            raise ProtocolError(
                f"pixel_levels is granted; wanted images of 8 bits, and {chosen.name} at "
                f"{chosen.size} px is resized to fractions of a level"
            )
        std = protocol.victim.std or tuple(statistics.std.tolist())

        def made(settings: ImageSettings, use: str) -> ImageVictim | DataUnavailable:
            spec = image_spec(settings, data, statistics)
            try:
                network = build(spec, generator(0, protocol.name, use), mirror)
            except DataUnavailable as reason:
                return reason
            return network.to(device).requires_grad_(False)

        public = protocol.public_network
        network = None if public is None else made(public, "public network")
        candidates = None
        if (embed := _embedding(protocol, made)) is not None:
            rows = candidate_rows(data.labels, generator(0, protocol.name, "candidates"))
            candidates = Candidates(data.images.__getitem__, rows, embed)
        scorer = ImageScorer(protocol.metrics, std, _lpips_files(mirror), candidates)
        shown = None
        if Grant.PUBLIC_IMAGES in protocol.threat.grants:
            order = torch.randperm(
                len(others.labels), generator=generator(0, protocol.name, "public images")
            )
            rows = order[:_PUBLIC_IMAGES]
            shown = ImageBatch(others.images[rows], others.labels[rows])
        return cls(protocol, data, statistics, scorer, mirror, device, network, shown)

    def round(self, seed: int, key: Key = PUBLIC) -> Round:
        """Make the undefended round of one seed; a trained victim is the seed's, known to all."""
        protocol = self.protocol
        base = key.base(seed) if protocol.canaries else seed
        if protocol.victim.trained_on is not None:
            victim = self.stage(seed).trained(_train(protocol), self.mirror)
        else:
            victim = self.stage(base).untrained(self.mirror)
        drawn = draw_images(
            protocol.name,
            self.data,
            base,
            trials=protocol.trials,
            batch_size=protocol.federation.examples,
            distinct_labels=protocol.federation.distinct_labels,
            per_class=protocol.data.per_class,
        )
        return Round(
            protocol.name,
            base,
            victim.to(self.device),
            canary_images(drawn, seed, key) if protocol.canaries else drawn,
            client(protocol.federation),
            protocol.federation.rounds,
        )

    def stage(self, seed: int) -> Stage:
        """Return what decides the weights of one seed's victim, trained or not."""
        protocol = self.protocol
        return Stage(
            protocol.victim,
            image_spec(protocol.victim, self.data, self.statistics),
            derive_seed(seed, protocol.name, "victim"),
            protocol.data.entry.digest.get("train", ""),
        )

    def facts(self, truth: ImageBatch | None) -> dict[Grant, Any]:
        """Return what a threat model may grant of a trial."""
        known = {
            Grant.BATCH_SIZE: self.protocol.federation.examples,
            Grant.DATA_STATISTICS: self.statistics,
            Grant.PIXEL_LEVELS: _LEVELS,
            Grant.PUBLIC_IMAGES: self.public_images,
            Grant.PUBLIC_NETWORK: None
            if isinstance(self.public_network, DataUnavailable)
            else self.public_network,
        }
        return known if truth is None else {**known, Grant.LABELS: truth.labels}

    def inverter(self, seed: int, defense: Submission) -> nn.Module | DataUnavailable | None:
        """Return the inverter of one seed's victim behind a defense, or why there is none here."""
        if self.protocol.inverter is None:
            return None
        if self.protocol.canaries:
            said = ["nothing, for its victim is drawn under a key"]
            return DataUnavailable("a canary's inverter", said, "a run without canaries")
        command = f"{_train(self.protocol)} --inverter {exactly(defense.label)} --seeds {seed}"
        try:
            return self.inverter_stage(seed, defense).trained(self.device, command)
        except DataUnavailable as reason:
            return reason

    def inverter_stage(self, seed: int, defense: Submission) -> InverterStage:
        """Return what decides the weights of an inverter."""
        return InverterStage(self.protocol, defense, seed)

    def answer(self, truth: ImageBatch) -> Tensor:
        """Return the images."""
        return truth.images

    def prior(self, truth: ImageBatch) -> Reconstruction:
        """Return the public split's mean image, and no label: none is known."""
        mean_image = self.statistics.mean_image
        return Reconstruction(mean_image.expand_as(truth.images), labels=truth.labels[:0])

    def fault(self, answer: Reconstruction) -> str | None:
        """Return in one line why an answer is a failed trial, or None."""
        return fault(
            answer,
            shape=(self.protocol.federation.examples, *self.data.images.shape[1:]),
            classes=len(self.data.class_names),
            budget=self.protocol.budget.budget(),
        )

    def score(self, truth: ImageBatch, answer: Reconstruction) -> dict[str, float | None]:
        """Return the protocol's metrics; labels that are granted are not inferred."""
        assert answer.images is not None
        granted = Grant.LABELS in self.protocol.threat.grants
        labels = None if granted or answer.labels is None else (truth.labels, answer.labels)
        return self.scorer.score(truth.images, answer.images, labels, answer.residual)

    def about_data(self) -> Mapping[str, str | int]:
        """Return the sha256 of the trained weights of each seed that are here."""
        if self.protocol.victim.trained_on is None:
            return {}
        files = {seed: self.stage(seed).file for seed in self.protocol.seeds}
        return {
            f"weights_seed_{seed}": hashlib.sha256(file.read_bytes()).hexdigest()
            for seed, file in files.items()
            if file.is_file()
        }


def _in_levels(images: Tensor) -> bool:
    """Tell whether every pixel, in [0, 1], is a level of 8 bits."""
    levels = images * (_LEVELS - 1)
    return torch.allclose(levels, levels.round(), atol=1e-3, rtol=0)


def _train(protocol: VisionProtocol) -> str:
    """Return the command that makes a protocol's trained victims."""
    named = protocol.name in protocol_files()
    return f"gradleak train {protocol.name if named else f'{protocol.name}.yaml'}"


def _lpips_files(mirror: Path | None) -> dict[str, Path]:
    """Return the backbones that are here; without its own the scorer answers None for an LPIPS."""
    found = {}
    for net, url in LPIPS_URLS.items():
        with contextlib.suppress(DataUnavailable):
            found[net] = find_weights(url.rpartition("/")[2], url, mirror)
    return found


def _embedding(
    protocol: VisionProtocol, made: Callable[[ImageSettings, str], ImageVictim | DataUnavailable]
) -> Callable[[Tensor], Tensor] | None:
    """Return what IIP compares images by; None where it is not asked for or cannot be had."""
    stated = protocol.iip_embedding
    if stated is None or "iip" not in protocol.metrics:
        return None
    if stated == "pixels":
        return pixels
    network = made(stated, "iip embedding")
    return None if isinstance(network, DataUnavailable) else partial(_features, network)


def _features(network: ImageVictim, images: Tensor) -> Tensor:
    """Return what a network's last linear layer reads, (batch, width)."""
    last = network.network.get_submodule(network.head)
    with torch.inference_mode(), layer_inputs(last, stop=True) as read:
        network(images.to(network.device))
    return read[0]


def image_spec(settings: ImageSettings, data: ImageSet, statistics: DataStatistics) -> ImageSpec:
    """Return a network in full: the protocol's settings and what the data adds."""
    return ImageSpec(
        **settings.model_dump(exclude={"mean", "std", "trained_on", "epochs"}),
        channels=data.images.shape[1],
        size=data.images.shape[-1],
        classes=len(data.class_names),
        mean=settings.mean or tuple(statistics.mean.tolist()),
        std=settings.std or tuple(statistics.std.tolist()),
    )
