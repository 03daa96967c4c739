"""Private batches that no data set holds: who carries the data set finds none of them in it.

An image is two of the private split, mixed pixel by pixel by weights that a key draws, which vary
smoothly over it; text is spliced of short runs by many users. Both keep what a prior knows of such
data: contrast and smoothness, and the words that follow one another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from benchmark.contract import ImageBatch, TextBatch
from benchmark.data import ImageSet, TokenSet
from benchmark.errors import ProtocolError
from benchmark.federation.draws import Batches, hidden
from benchmark.seeds import Key, generator

_GRID = 4  # weights along a side of an image, between which they are interpolated
_RUN = (4, 12)  # tokens of a run of one user's text
_LEVELS = 255  # of a pixel of 8 bits, like a picture's


@dataclass(frozen=True)
class _Images(Sequence[ImageBatch]):
    """Mixtures of drawn images with others of their set, each made anew."""

    drawn: Batches
    seed: int
    key: Key

    def __len__(self) -> int:
        return len(self.drawn)

    @overload
    def __getitem__(self, index: int) -> ImageBatch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ImageBatch]: ...
    def __getitem__(self, index: int | slice) -> ImageBatch | Sequence[ImageBatch]:
        if isinstance(index, slice):
            return [self[trial] for trial in range(len(self))[index]]
        trial, data = range(len(self))[index], self.drawn.data
        draws = self.key.draws(self.seed, data.name, "canary", trial)
        rows, count = self.drawn.rows[trial], len(data.labels)
        others = (rows + torch.from_numpy(draws.integers(1, count, len(rows)))) % count
        return ImageBatch(mixed(data.images[rows], data.images[others], draws), data.labels[rows])


def canary_images(drawn: Batches, seed: int, key: Key) -> Sequence[ImageBatch]:
    """Return canaries in place of drawn images, each made when asked for, with their labels.

    Args:
        drawn: batches of a private split, under a base that is secret too.
        seed: names the draws.
        key: decides them.

    Raises:
        ProtocolError: the split has one image alone.
    """
    data: ImageSet = drawn.data
    if len(data.labels) < 2:
        raise ProtocolError(f"{data.name}: a canary is of two images; the split has one")
    return _Images(drawn, seed, key)


def mixed(first: Tensor, second: Tensor, draws: np.random.Generator) -> Tensor:
    """Return images mixed pixel by pixel, at the brightness and contrast of the first.

    Args:
        first: (batch, channel, height, width), which has the larger share of each.
        second: the same.
        draws: of the weights.
    """
    coarse = torch.from_numpy(draws.random((len(first), 1, _GRID, _GRID), dtype=np.float32))
    coarse = torch.where(coarse.mean((1, 2, 3), keepdim=True) < 0.5, 1 - coarse, coarse)
    size = tuple(first.shape[-2:])
    weight = functional.interpolate(coarse, size, mode="bilinear", align_corners=True)
    made = torch.lerp(second, first, weight)
    std, mean = torch.std_mean(made, dim=(1, 2, 3), keepdim=True)
    wanted, level = torch.std_mean(first, dim=(1, 2, 3), keepdim=True)
    made = (made - mean) / std.clamp_min(1 / _LEVELS) * wanted + level
    return made.clamp(0, 1).mul(_LEVELS).round() / _LEVELS


def canary_text(
    name: str,
    data: TokenSet,
    seed: int,
    *,
    key: Key,
    trials: int,
    users: int,
    batch_size: int,
    length: int,
    masked: bool = False,
) -> list[TextBatch]:
    """Return batches of sequences that are spliced of runs of the private split's text.

    Args:
        name: the protocol's, for errors.
        data: the private split.
        seed: names the draws.
        key: decides them.
        trials: batches.
        users: in an aggregate, whose sequences make one batch.
        batch_size: sequences a user.
        length: tokens a sequence.
        masked: whether places are to be hidden, one of each sequence at least.

    Raises:
        ProtocolError: no user has enough text for a run.
    """
    able, _ = data.with_at_least(_RUN[1])
    texts = list(able.values())
    if not texts:
        raise ProtocolError(f"{name}: no user of {data.name} has {_RUN[1]} tokens for a canary")
    batches = []
    for trial in range(trials):
        draws = key.draws(seed, data.name, "canary", trial)
        tokens = torch.stack([_spliced(texts, length, draws) for _ in range(users * batch_size)])
        places = generator(key.base(seed), data.name, "hidden", trial)
        batches.append(TextBatch(tokens, hidden(tokens, places) if masked else None))
    return batches


def _spliced(texts: Sequence[Tensor], length: int, draws: np.random.Generator) -> Tensor:
    """Return (length,) tokens in runs, each from a place in one user's text."""
    runs: list[Tensor] = []
    while sum(map(len, runs)) < length:
        text = texts[int(draws.integers(len(texts)))]
        size = int(draws.integers(_RUN[0], _RUN[1], endpoint=True))
        start = int(draws.integers(len(text) - size, endpoint=True))
        runs.append(text[start : start + size])
    return torch.cat(runs)[:length]
