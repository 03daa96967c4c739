"""What federated training is of: images, or text; all in which the two tracks differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from benchmark.contract import Batch, Defense, ImageBatch, TextBatch, Victim
from benchmark.data import load_images, load_tokenizer, load_tokens
from benchmark.federation.draws import hidden
from benchmark.protocol import TextUtility, UtilityProtocol, VisionUtility
from benchmark.registry import Registry
from benchmark.seeds import generator
from benchmark.tracks import image_spec
from benchmark.utility.diagnostics import diagnose
from benchmark.utility.perplexity import frequencies_perplexity, perplexity
from benchmark.victims import ImageSpec, ImageVictim, TextSpec, TextVictim, accuracy, build


class Task(ABC):
    """A utility protocol's data and victim.

    Attributes:
        public: what clients hold.
        private: what their model is judged on.
        higher: whether a higher figure is better.
    """

    higher: ClassVar[bool]
    public: Batch
    private: Batch

    @abstractmethod
    def victim(self, seed: int) -> Victim:
        """Make the model that the server starts from.

        Raises:
            DataUnavailable: its weights cannot be had here.
        """

    @abstractmethod
    def figure(self, model: Victim, data: Batch) -> float:
        """Return what a model is worth on some data, in the protocol's figure."""

    @property
    @abstractmethod
    def chance(self) -> float:
        """What frequencies alone come to on the public split."""

    def diverged(self, figure: float) -> bool:
        """Tell whether a figure on the public split is no better than frequencies alone."""
        return figure <= self.chance if self.higher else figure >= self.chance

    def best(self, figures: Mapping[float, float]) -> float:
        """Return the rate of the best figure; of equal ones the lowest."""
        choose = max if self.higher else min
        return choose(sorted(figures), key=lambda rate: figures[rate])

    def diagnose(self, model: Victim, draws: np.random.Generator) -> dict[str, float]:
        """Return what else is told of a trained model, by name; nothing by default."""
        return {}


@dataclass(frozen=True)
class ImageTask(Task):
    """Images, and the share of them whose label is told.

    Attributes:
        shuffler: a defense that shuffles images, by which a trained victim is judged too.
    """

    higher = True

    protocol: VisionUtility
    public: ImageBatch
    private: ImageBatch
    spec: ImageSpec
    shuffler: Defense | None
    mirror: Path | None
    device: torch.device

    @classmethod
    def load(
        cls,
        protocol: VisionUtility,
        registry: Registry,
        mirror: Path | None,
        device: torch.device,
    ) -> ImageTask:
        """Load a protocol's images; raises as `load_task`."""
        chosen, shuffler = protocol.data, None
        public = load_images(chosen.name, "train", chosen.size, mirror)
        private = load_images(chosen.name, "test", chosen.size, mirror)
        if protocol.shuffled_by is not None:
            shuffler = registry.select("defense", (protocol.shuffled_by,))[0].build()
        return cls(
            protocol,
            ImageBatch(public.images[:], public.labels),
            ImageBatch(private.images[:], private.labels),
            image_spec(protocol.victim, public, public.statistics),
            shuffler,
            mirror,
            device,
        )

    def victim(self, seed: int) -> ImageVictim:
        """Make the model of a seed; see `Task`."""
        draws = generator(seed, self.protocol.name, "victim")
        return build(self.spec, draws, self.mirror).to(self.device)

    def figure(self, model: Victim, data: Batch) -> float:
        """Return the share of images whose label is told."""
        assert isinstance(data, ImageBatch)
        return accuracy(ImageVictim.of(model), data.images, data.labels)

    @property
    def chance(self) -> float:
        """The share of the commonest label."""
        return int(self.public.labels.bincount().max()) / len(self.public)

    def diagnose(self, model: Victim, draws: np.random.Generator) -> dict[str, float]:
        """Return what a trained victim makes of shuffled images, where a shuffler is stated."""
        if self.shuffler is None:
            return {}
        return diagnose(ImageVictim.of(model), self.private, self.shuffler, draws)


@dataclass(frozen=True)
class TextTask(Task):
    """Text, and the perplexity of its next tokens, of hidden ones where the victim is masked."""

    higher = False

    protocol: TextUtility
    public: TextBatch
    private: TextBatch
    spec: TextSpec
    mirror: Path | None
    device: torch.device

    @classmethod
    def load(cls, protocol: TextUtility, mirror: Path | None, device: torch.device) -> TextTask:
        """Load a protocol's text; raises as `load_task`."""
        chosen, victim = protocol.data, protocol.victim
        tokenizer = load_tokenizer(chosen.tokenizer, mirror)
        skip = chosen.skip_lines
        public, private = (
            load_tokens(chosen.name, split, tokenizer, mirror, skip_lines=skip).users.values()
            for split in ("train", "test")
        )
        spec = TextSpec(
            **victim.model_dump(),
            vocabulary=tokenizer.vocabulary,
            length=max(chosen.length, victim.kind.positions),
            mask_token=tokenizer.mask_token,
        )

        def batch(users: Iterable[Tensor], half: str) -> TextBatch:
            tokens = _sequences(users, chosen.length)
            draws = generator(0, protocol.name, "hidden", half)
            return TextBatch(tokens, hidden(tokens, draws) if victim.kind.masked else None)

        return cls(
            protocol, batch(public, "public"), batch(private, "private"), spec, mirror, device
        )

    def victim(self, seed: int) -> TextVictim:
        """Make the model of a seed; see `Task`."""
        draws = generator(seed, self.protocol.name, "victim")
        return build(self.spec, draws, self.mirror).to(self.device)

    def figure(self, model: Victim, data: Batch) -> float:
        """Return the perplexity."""
        assert isinstance(data, TextBatch)
        return perplexity(TextVictim.of(model), data)

    @property
    def chance(self) -> float:
        """The perplexity of the tokens' own frequencies."""
        return frequencies_perplexity(self.public)


def load_task(
    protocol: UtilityProtocol, registry: Registry, mirror: Path | None, device: torch.device
) -> Task:
    """Load what a protocol trains and judges.

    Raises:
        DataUnavailable: the data cannot be had here.
        PluginError: no such shuffler.
    """
    if isinstance(protocol, TextUtility):
        return TextTask.load(protocol, mirror, device)
    assert isinstance(protocol, VisionUtility)
    return ImageTask.load(protocol, registry, mirror, device)


def _sequences(users: Iterable[Tensor], length: int) -> Tensor:
    """Return every whole sequence of each user's text, (sequences, length) int64."""
    return torch.cat([text[: len(text) // length * length].view(-1, length) for text in users])
