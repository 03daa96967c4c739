"""Defenses as client mods of Flower (the extra `flower`), as they stand on the board.

app = ClientApp(mods=[defense_mod("gaussian_noise,scale=0.01", model, rate=0.1)])
"""

from __future__ import annotations

import importlib.util
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from benchmark.contract import Defense, Update, Victim
from benchmark.errors import BenchmarkError, PluginError
from benchmark.registry import Registry
from benchmark.seeds import Key

if TYPE_CHECKING:
    from flwr.app import ArrayRecord, Context, Message

    Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]

_NEEDS_MORE = ("keyed", "harden", "protect_batch", "compute_update", "server_view", "client_view")
"""Hooks that want the batch, the training or the server, which no mod sees."""


def defense_mod(defense: str, model: Victim, *, rate: float, steps: int = 1) -> Mod:
    """Return a Flower mod that puts a defense on every update a client sends.

    A client is sent weights and returns weights in one `ArrayRecord`, by name of parameter. What
    the defense sees is their difference over rate and steps: of one step of SGD its gradient, as
    everywhere on the board. What it withholds comes back as it was sent. Other entries, such as
    running statistics, pass. Every message has a key of its own from the operating system.

    Args:
        defense: a registered one, `name` or `name,key=value`.
        model: of the same parameters; their values do not matter.
        rate: of the client's SGD.
        steps: local ones.

    Raises:
        PluginError: no such defense, or one that acts before the update is made.
        BenchmarkError: Flower is not installed.
    """
    submission = Registry().select("defense", (defense,))[0]
    built = submission.build()
    for hook in _NEEDS_MORE:
        if getattr(type(built), hook) is not getattr(Defense, hook):
            raise PluginError(f"{submission.label} acts in {hook}; a Flower mod sees updates alone")
    needs_flower()

    def mod(
        msg: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        from flwr.app import ArrayRecord, MessageType

        if msg.metadata.message_type != MessageType.TRAIN:
            return call_next(msg, context)
        held = dict(weights_in(msg)[1].to_torch_state_dict())
        reply = call_next(msg, context)
        if reply.has_error():
            return reply
        name, record = weights_in(reply)
        moved = record.to_torch_state_dict()
        draws = Key(secrets.token_bytes(32)).draws("update")
        told = defended(built, model, held, moved, rate * steps, draws)
        reply.content.array_records[name] = ArrayRecord(told)
        return reply

    return mod


def needs_flower() -> None:
    """Raise BenchmarkError where the extra is not installed."""
    if importlib.util.find_spec("flwr") is None:
        raise BenchmarkError("Flower is not installed: pip install 'gradleak[flower]'")


def defended(
    defense: Defense,
    model: Victim,
    held: Mapping[str, Tensor],
    moved: Mapping[str, Tensor],
    scale: float,
    draws: np.random.Generator,
) -> dict[str, Tensor]:
    """Return the weights that tell what a defense lets through.

    Args:
        defense: acts on updates alone.
        model: says which entries are parameters.
        held: what the client was sent.
        moved: what its training made of it.
        scale: of the update: the difference over it is what the defense sees.
        draws: the client's.
    """
    update = Update({name: (held[name] - moved[name]) / scale for name in model.weights()})
    sent = defense.protect_update(update, model, draws)
    told = {
        name: held[name] - scale * sent[name] if name in sent else held[name] for name in update
    }
    return dict(moved) | told


def weights_in(msg: Message) -> tuple[str, ArrayRecord]:
    """Return the one record of weights of a message, with its name.

    Raises:
        PluginError: there is another beside it, which would pass undefended.
    """
    records = list(msg.content.array_records.items())
    if len(records) != 1:
        raise PluginError(f"a message holds {len(records)} ArrayRecords; wanted the weights alone")
    return records[0]
