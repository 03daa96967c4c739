"""Federated training with a defense on: clients, server, and what a round costs."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from benchmark.contract import Batch, Defense, ImageBatch, Update, Victim
from benchmark.errors import RefusedError
from benchmark.federation import Client, fedsgd
from benchmark.protocol import Training
from benchmark.seeds import PUBLIC, generator


@dataclass(frozen=True)
class Trained:
    """What a training came to.

    Attributes:
        model: as clients read it at the end.
        seconds: of all clients and the server.
        sent: bytes that one client sent in all.
    """

    model: Victim
    seconds: float
    sent: int


def train(
    victim: Victim,
    defense: Defense,
    label: str,
    data: Batch,
    training: Training,
    *,
    rate: float,
    name: str,
    seed: int,
) -> Trained:
    """Train a victim by the clients' updates behind a defense; its own weights stay as they are.

    The server adds the mean of the updates it receives, with momentum, to the model that it holds:
    what is withheld is not trained, and a model that every client refuses is trained no further.

    Args:
        victim: the model that the server makes.
        defense: the defense.
        label: its name with arguments; its draws are its own.
        data: of all clients, images or sequences.
        training: the rest of the setting.
        rate: of the server.
        name: of the protocol; its draws are its own.
        seed: the base of every draw.

    Raises:
        NotApplicable: the defense does not fit the victim.
    """
    began = time.perf_counter()
    keyed, held = arm(defense, label, victim, name, seed)
    client = Client(local=training.local())
    orders = [
        batches(part, training.batch_size, seed, name, number)
        for number, part in enumerate(shares(data, training, seed, name))
    ]
    speed: dict[str, Tensor] = {}
    sent = 0
    for turn in range(training.rounds):
        model = keyed.client_view(held)
        updates = []
        for number, order in enumerate(orders):
            batch = data.select(next(order))
            use = (seed, name, "utility", label, turn, number)
            try:
                update = answer(client, keyed, model, batch, use)
            except RefusedError:
                continue
            updates.append(update)
            sent += keyed.wire_bytes(update) if number == 0 else 0
        if not updates:
            break
        _step(held, updates, speed, rate, training.momentum)
    return Trained(keyed.client_view(held), time.perf_counter() - began, sent)


def arm(
    defense: Defense, label: str, victim: Victim, name: str, seed: int
) -> tuple[Defense, Victim]:
    """Return a defense as clients hold it, and the victim that it makes, as the server holds it."""
    hardened = defense.harden(victim, generator(seed, name, "harden", label))
    keyed = defense.keyed(hardened, PUBLIC.draws(seed, name, "keyed", label))
    return keyed, copy.deepcopy(keyed.server_view(hardened))


def shares(data: Batch, training: Training, seed: int, name: str) -> list[Tensor]:
    """Return the rows of each client, disjoint, all of them together; none is empty.

    IID: equal parts of a random order. Dirichlet: each class of images in shares of its own.
    """
    draws = generator(seed, name, "shares")
    order = torch.randperm(len(data), generator=draws)
    if training.split == "iid":
        return [part.clone() for part in order.tensor_split(training.clients)]
    assert isinstance(data, ImageBatch)
    assert training.concentration is not None
    labels = data.labels
    parts: list[list[Tensor]] = [[] for _ in range(training.clients)]
    numbers = PUBLIC.draws(seed, name, "shares")
    for label in torch.arange(int(labels.max()) + 1):
        own = order[labels[order] == label]
        share = numbers.dirichlet([training.concentration] * training.clients).cumsum()
        ends = (torch.from_numpy(share[:-1]) * len(own)).round().long()
        for part, rows in zip(parts, own.tensor_split(ends), strict=True):
            part.append(rows)
    found = [torch.cat(part) for part in parts]
    for number, rows in enumerate(found):
        if not len(rows):  # a client without images takes one of the largest's
            rich = max(range(len(found)), key=lambda i: len(found[i]))
            found[number], found[rich] = found[rich][:1], found[rich][1:]
    return found


def batches(part: Tensor, size: int, seed: int, name: str, client: int) -> Iterator[Tensor]:
    """Yield the rows of a client's batches for ever, epoch after epoch."""
    draws = generator(seed, name, "batches", client)
    while True:
        order = part[torch.randperm(len(part), generator=draws)]
        whole = order[: max(len(order) // size * size, min(size, len(order)))]
        yield from torch.split(whole, size)


def answer(
    client: Client, defense: Defense, model: Victim, given: Batch, use: tuple[str | int, ...]
) -> Update:
    """Return what one client sends in one round."""
    draws = [PUBLIC.draws(*use, what) for what in ("batch", "compute", "update")]
    dropped = generator(0, *use, "dropout")

    def gradient(model: Victim, batch: Batch) -> Update:
        return fedsgd(model, batch, dropped)

    def protected(model: Victim, batch: Batch) -> Update:
        return defense.compute_update(batch, model, partial(gradient, model), draws[1])

    batch = defense.protect_batch(given, model, draws[0])
    update = client.update(model, batch, protected, generator(0, *use, "order"))
    return defense.protect_update(update, model, draws[2])


def _step(
    held: Victim,
    updates: Sequence[Update],
    speed: dict[str, Tensor],
    rate: float,
    momentum: float,
) -> None:
    """Move the server's model by the mean of what was sent."""
    for name, weight in held.weights().items():
        got = [update[name] for update in updates if name in update]
        if not got:
            continue
        mean = torch.stack(got).mean(0)
        speed[name] = mean if name not in speed else momentum * speed[name] + mean
        weight.data.sub_(speed[name], alpha=rate)
