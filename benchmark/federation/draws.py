"""Which private batches a round attacks: drawn by the data's name and the seed alone."""

from __future__ import annotations

import torch

from benchmark.contract import Batch, TextBatch
from benchmark.data import ImageSet, TokenSet
from benchmark.errors import ProtocolError
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
) -> list[Batch]:
    """Return the private batches of a round; no image is in two of them.

    Args:
        name: the protocol's, for errors.
        data: the private split.
        seed: the base of the draw.
        trials: batches.
        batch_size: images a batch.
        distinct_labels: no label stands twice in a batch.

    Raises:
        ProtocolError: the data set has too few images.
    """
    if trials * batch_size > len(data.images):
        raise ProtocolError(
            f"{name}: {trials} trials of {batch_size} images wanted, {data.name} has "
            f"{len(data.images)} in its {data.split} split"
        )
    order = torch.randperm(len(data.images), generator=generator(seed, data.name, "trials"))
    chosen = list(order[: trials * batch_size].view(trials, batch_size))
    if distinct_labels:
        chosen = _distinct(order.tolist(), data.labels.tolist(), trials, batch_size)
        if len(chosen) < trials:
            raise ProtocolError(
                f"{name}: {trials} batches of {batch_size} distinct labels wanted, "
                f"{data.name} has {len(chosen)} in its {data.split} split"
            )
    return [Batch(data.images[rows], data.labels[rows]) for rows in chosen]


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
        batches.append(TextBatch(tokens, _hidden(tokens, draws) if masked else None))
    return batches


def _hidden(tokens: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    scores = torch.rand(tokens.shape, generator=draws)
    least = scores.min(dim=1, keepdim=True).values
    return (scores < _MASKED) | (scores == least)


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
