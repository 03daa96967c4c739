"""Client mods of Flower (the extra `flower`): a defense, and an audit before anything is sent.

    app = ClientApp(mods=[guard_mod(model, rate=0.1), defense_mod("sign_update", victim, rate=0.1)])

The guard stands first, so that it sees what leaves the client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from torch import nn

from benchmark.flower import defense_mod, needs_flower, weights_in
from gradleak.guarding import guard

if TYPE_CHECKING:
    from flwr.app import Context, Message

    from benchmark.flower import Mod

__all__ = ["defense_mod", "guard_mod"]


def guard_mod(
    model: nn.Module,
    *,
    rate: float,
    steps: int = 1,
    action: Literal["raise", "log"] = "raise",
    seconds: float = 10.0,
    attacks: Sequence[str] | None = None,
    **options: Any,  # noqa: ANN401  (audit's)
) -> Mod:
    """Return a Flower mod that audits the weights a client returns, before they are sent.

    No batch is seen here, so that a leak is told by how well a reconstruction explains the update:
    a verdict of `exact` or `partly`. Where that is to be an error, the client's answer to the
    server is the error, and no weights.

    Args:
        model: the client's architecture, as `gradleak.audit` takes it; its weights do not matter.
        rate: of the client's SGD.
        steps: local ones.
        action: what a leak does: `raise` a LeakError, or `log` a warning.
        seconds: for all attacks on one update.
        attacks: labels as `gradleak list attacks` names them; None is all but searches.
        options: what else `audit` takes, such as `mean`, `std`, `batch_size`.

    Raises:
        BenchmarkError: Flower is not installed, or an argument that does not fit.
    """
    needs_flower()
    told = {"seconds": seconds, "attacks": attacks, "rate": rate, "steps": steps, **options}
    watch = guard(model, every=1, action=action, **told)

    def mod(
        msg: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        from flwr.app import MessageType

        if msg.metadata.message_type != MessageType.TRAIN:
            return call_next(msg, context)
        held = weights_in(msg)[1].to_torch_state_dict()
        reply = call_next(msg, context)
        if not reply.has_error():
            watch(before=held, after=weights_in(reply)[1].to_torch_state_dict())
        return reply

    return mod
