"""Which private batches a round attacks: drawn by the data's name and the seed alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import torch

from benchmark.contract import ImageBatch, TextBatch
from benchmark.data import CATALOGUE, ImageSet, TokenSet
from benchmark.errors import BenchmarkError, DataUnavailable, ProtocolError
from benchmark.seeds import generator

_MASKED = 0.15  # share of the places that a masked language model guesses, as BERT was trained


def draw_images(
    name: str,
    data: ImageSet,
    seed: int,
    *,
    trials: int,
    batch_size: int,
    distinct_labels: bool = False,
    per_class: int | None = None,
) -> Batches:
    """Return the private batches of a round, each made when asked for; no image is in two.

    Args:
        name: the protocol's, for errors.
        data: the private split.
        seed: the base of the draw.
        trials: batches.
        batch_size: images a batch.
        distinct_labels: no label stands twice in a batch.
        per_class: most images of a class in all batches together; fewer trials are still the
            first of more.

    Raises:
        ProtocolError: the data set has too few images.
        DataUnavailable: this copy of a set whose size is the copy's has too few.
    """
    draws, labels = generator(seed, data.name, "trials"), data.labels.tolist()
    order = torch.randperm(len(labels), generator=draws).tolist()
    if per_class is not None:
        order = _thinned(order, labels, per_class)
    wanted, has = f"{trials} trials of {batch_size} images", len(order)
    if distinct_labels:
        chosen = _distinct(order, labels, trials, batch_size)
        wanted, has = f"{trials} batches of {batch_size} distinct labels", len(chosen)
    else:
        whole = order[: len(order) // batch_size * batch_size]
        chosen = list(torch.tensor(whole, dtype=torch.int64).view(-1, batch_size)[:trials])
    if len(chosen) < trials:
        limit = f", at most {per_class} a class," if per_class is not None else ""
        raise _too_few(name, data, wanted + limit, has)
    return Batches(data, tuple(chosen))


@dataclass(frozen=True)
class Batches(Sequence[ImageBatch]):
    """Batches of the rows of a set, each made anew: photographs are decoded when indexed."""

    data: ImageSet
    rows: tuple[torch.Tensor, ...]

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> ImageBatch: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ImageBatch]: ...
    def __getitem__(self, index: int | slice) -> ImageBatch | Sequence[ImageBatch]:
        chosen = self.rows[index]
        if isinstance(chosen, tuple):
            return Batches(self.data, chosen)
        return ImageBatch(self.data.images[chosen], self.data.labels[chosen])


def _too_few(name: str, data: ImageSet, wanted: str, has: int) -> BenchmarkError:
    """Return the error of a set too small; one whose size is the copy's may be had larger."""
    known = CATALOGUE.get(data.name)
    if known is not None and not known.size:
        tried = f"the copy here, which has {has} in its {data.split} split"
        return DataUnavailable(f"{data.name} with {wanted} for {name}", [tried], known.access)
    return ProtocolError(
        f"{name}: {wanted} wanted, {data.name} has {has} in its {data.split} split"
    )


def draw_text(
    name: str,
    data: TokenSet,
    seed: int,
    *,
    trials: int,
    users: int,
    batch_size: int,
    length: int,
    masked: bool = False,
) -> list[TextBatch]:
    """Return the private batches of a round, each the beginning of its users' text.

    Users with too little text are skipped; nothing is padded, and no user is in two batches.

    Args:
        name: the protocol's, for errors.
        data: the private split.
        seed: the base of the draw.
        trials: batches.
        users: in an aggregate, whose sequences make one batch.
        batch_size: sequences a user.
        length: tokens a sequence.
        masked: whether places are to be hidden, one of each sequence at least.

    Raises:
        ProtocolError: too few users have enough text.
    """
    wanted = batch_size * length
    able, _ = data.with_at_least(wanted)
    if trials * users > len(able):
        raise ProtocolError(
            f"{name}: {trials} trials of {users} users with {wanted} tokens wanted, {data.name} "
            f"has {len(able)} in its {data.split} split"
        )
    draws = generator(seed, data.name, "trials")
    order = torch.randperm(len(able), generator=draws)[: trials * users].view(trials, users)
    texts = [data.users[user][:wanted] for user in able]
    batches = []
    for row in order.tolist():
        tokens = torch.cat([texts[user] for user in row]).view(-1, length)
        batches.append(TextBatch(tokens, hidden(tokens, draws) if masked else None))
    return batches


def hidden(tokens: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """Draw the places that are hidden, (batch, length) bool, at least one of each sequence."""
    scores = torch.rand(tokens.shape, generator=draws)
    least = scores.min(dim=1, keepdim=True).values
    return (scores < _MASKED) | (scores == least)


def _thinned(order: list[int], labels: list[int], most: int) -> list[int]:
    """Return the rows in their order, the first `most` of each label."""
    left: dict[int, int] = {}
    kept = []
    for row in order:
        left[labels[row]] = left.get(labels[row], most) - 1
        if left[labels[row]] >= 0:
            kept.append(row)
    return kept


def _distinct(order: list[int], labels: list[int], trials: int, batch: int) -> list[torch.Tensor]:
    """Return batches in which no label stands twice: each takes the next image that fits."""
    chosen: list[torch.Tensor] = []
    while len(chosen) < trials:
        picked: dict[int, int] = {}  # by label
        for row in order:
            if len(picked) == batch:
                break
            picked.setdefault(labels[row], row)
        if len(picked) < batch:
            break
        taken = set(picked.values())
        order = [row for row in order if row not in taken]
        chosen.append(torch.tensor(list(picked.values())))
    return chosen
