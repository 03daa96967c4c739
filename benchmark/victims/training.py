"""A training stage: how a victim is trained on public images, and where its weights lie."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from benchmark.contract import ImageBatch
from benchmark.errors import BenchmarkError, DataUnavailable
from benchmark.victims.checkpoint import replace_weights
from benchmark.victims.pretrained import cache_folder, keep
from benchmark.victims.spec import ImageSettings, ImageSpec
from benchmark.victims.victim import ImageVictim

_AT_ONCE = 256  # images whose labels are told in one pass


class ImageSource(Protocol):
    """Images (N, channel, height, width) float32 in [0, 1]: a tensor, or made when indexed."""

    def __len__(self) -> int: ...
    def __getitem__(self, rows: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Recipe:
    """AdamW (Loshchilov and Hutter 2019) with cosine decay to zero; no augmentation."""

    rate: float = 3e-4
    weight_decay: float = 0.05
    warm_up: float = 0.1
    """Share of the steps in which the rate rises from zero."""
    batch_size: int = 32
    """Images a step, the last of an epoch fewer."""

    def factor(self, step: int, steps: int) -> float:
        """Return what the rate of a step, counted from 0, is multiplied by."""
        warm = max(1, round(self.warm_up * steps))
        if step < warm:
            return (step + 1) / warm
        return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


RECIPE = Recipe()


@dataclass(frozen=True)
class Stage:
    """All that decides a victim's trained weights.

    On the CPU the same stage makes the same bits on a machine, given the same number of threads.

    Attributes:
        settings: the protocol's, which name the data set and the epochs.
        spec: the victim before its training, in full.
        seed: of the initial weights, those of an untrained victim, and of the batches' order.
        content: sha256 of the public split.
        recipe: the rest.
    """

    settings: ImageSettings
    spec: ImageSpec
    seed: int
    content: str
    recipe: Recipe = RECIPE

    @cached_property
    def digest(self) -> str:
        """Identify the stage in 16 hexadecimal digits.

        Means taken from the split are its content's: their last bit depends on the threads.
        """
        stated = {
            "settings": self.settings.model_dump(mode="json", exclude_defaults=True),
            "shape": [self.spec.channels, self.spec.size, self.spec.classes],
            "seed": self.seed,
            "content": self.content,
            "recipe": asdict(self.recipe),
        }
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def file(self) -> Path:
        """Where the weights lie once they are made."""
        architecture = self.spec.architecture.replace("/", "_")
        name = f"{architecture}-{self.settings.trained_on}-{self.digest}.safetensors"
        return cache_folder() / "weights" / name

    def untrained(self, mirror: Path | None) -> ImageVictim:
        """Return the victim as its training begins; raises as `build` does."""
        return ImageVictim.make(self.spec, torch.Generator().manual_seed(self.seed), mirror)

    def trained(self, command: str, mirror: Path | None = None) -> ImageVictim:
        """Return the trained victim, on the CPU, in evaluation mode.

        Args:
            command: what would train it.
            mirror: says of a model of the hub what it is.

        Raises:
            DataUnavailable: it has not been trained on this machine.
            BenchmarkError: the file holds no such weights.
        """
        if not self.file.is_file():
            chosen = self.settings
            name = f"{chosen.architecture} trained on {chosen.trained_on}, epochs: {chosen.epochs},"
            raise DataUnavailable(name, [str(self.file)], command)
        blank = self.spec.model_copy(update={"weights": "random"})
        victim = ImageVictim.make(blank, torch.Generator().manual_seed(self.seed), mirror)
        replace_weights(victim.network, self.file)
        # so that no other width is asked of these weights
        victim.spec = victim.spec.model_copy(update={"weights": "pretrained"})
        return victim

    def steps(self, images: int) -> int:
        """Return the steps that training on so many images takes."""
        assert self.settings.epochs is not None
        return self.settings.epochs * math.ceil(images / self.recipe.batch_size)

    def fit(
        self,
        victim: ImageVictim,
        images: ImageSource,
        labels: Tensor,
        after_step: Callable[[float], None],
    ) -> None:
        """Train a victim in place; dropout and BatchNorm act as in training until the end.

        Args:
            victim: on any device.
            images: of the public split.
            labels: (N,) int64.
            after_step: is told the mean cross entropy of the step's batch in nats.

        Raises:
            BenchmarkError: the loss is no longer finite.
        """
        recipe, steps, device = self.recipe, self.steps(len(labels)), victim.device
        optimiser = torch.optim.AdamW(
            victim.parameters(), lr=recipe.rate, weight_decay=recipe.weight_decay
        )
        rates = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda n: recipe.factor(n, steps))
        rows = _batches(len(labels), recipe.batch_size, torch.Generator().manual_seed(self.seed))
        # dropout draws from torch's global stream
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(self.seed)
            victim.train()
            for step, chosen in enumerate(islice(rows, steps), start=1):
                optimiser.zero_grad()
                loss = victim.loss(ImageBatch(images[chosen], labels[chosen]))
                torch.autograd.backward(loss)
                optimiser.step()
                rates.step()
                if not math.isfinite(nats := loss.item()):
                    raise BenchmarkError(f"training: loss {nats} at step {step} of {steps}")
                after_step(nats)
            victim.eval()

    def save(self, victim: ImageVictim) -> None:
        """Write a trained victim's tensors; a reader, or a kill, finds the whole file or none.

        Raises:
            BenchmarkError: the cache cannot be written.
        """
        from safetensors.torch import save

        network = victim.network.state_dict()
        whole = save({name: tensor.cpu().contiguous() for name, tensor in network.items()})
        keep(self.file, whole)


def accuracy(victim: ImageVictim, images: ImageSource, labels: Tensor) -> float:
    """Return the share of images whose label (N,) a victim tells."""
    right = 0
    with torch.inference_mode():
        for rows in torch.split(torch.arange(len(labels)), _AT_ONCE):
            told = victim(images[rows].to(victim.device)).argmax(1).cpu()
            right += int((told == labels[rows]).sum())
    return right / len(labels)


def _batches(images: int, size: int, draws: torch.Generator) -> Iterator[Tensor]:
    """Yield the rows of batches, epoch after epoch, each in an order of its own."""
    while True:
        yield from torch.split(torch.randperm(images, generator=draws), size)
