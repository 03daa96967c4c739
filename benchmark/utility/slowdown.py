"""How much longer a client takes behind a defense."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from statistics import median

from benchmark.contract import Batch, Defense, Victim
from benchmark.errors import RefusedError
from benchmark.federation import Client
from benchmark.protocol import Training
from benchmark.utility.federated import answer, arm, batches, shares

_TURNS = 20


def slowdown(
    victim: Victim,
    defense: Defense,
    label: str,
    data: Batch,
    training: Training,
    *,
    name: str,
    seed: int,
    clock: Callable[[], float] = time.process_time,
) -> float:
    """Return a client's processor time in a round, as a multiple of that of one without a defense.

    Both are timed in turn on the same batches, after one that is not counted, and the median of
    their ratios is returned. Other work of the machine counts little in a ratio of processor time.

    Args:
        victim: the model that the server makes.
        defense: the defense.
        label: its name with arguments.
        data: of all clients.
        training: the rest of the setting.
        name: of the protocol.
        seed: the base of every draw.
        clock: tells seconds.

    Raises:
        NotApplicable: the defense does not fit the victim.
    """
    keyed, held = arm(defense, label, victim, name, seed)
    client, plain = Client(local=training.local()), Defense()
    order = batches(shares(data, training, seed, name)[0], training.batch_size, seed, name, 0)

    def timed(used: Defense, model: Victim, batch: Batch, turn: int) -> float:
        began = clock()
        with suppress(RefusedError):
            answer(client, used, used.client_view(model), batch, (seed, name, "time", label, turn))
        return clock() - began

    ratios = []
    for turn in range(1 + _TURNS):
        batch = data.select(next(order))
        ratios.append(timed(keyed, held, batch, turn) / timed(plain, victim, batch, turn))
    return median(ratios[1:])
