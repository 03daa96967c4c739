"""Key recovery: an encrypted model gives its key away to a server that knows it in the clear.

Source: derived for this benchmark, against Aso, Shiota and Kiya (2023). Their server makes the
initial model and then holds it encrypted, to add updates to it. Each encrypted row of the positions
is a plain one: which one is E_b. Of the patch embedding, `encrypted' = E_a plain'` is linear in
E_a: solved where the width is at least the pixels of a patch, and on the row space of the
embedding's weights where it is less. The update decrypted so is read by a closed form. A client
that colludes with the server, where the protocol says so, tells the key: nothing is then left open.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    NotApplicable,
    Observation,
    Reconstruction,
    Update,
    weights,
)
from submissions.attacks.matched_closed_form.attack import closed_form


@dataclass(frozen=True)
class KeyRecovery(Attack):
    """Row matching, one least-squares solve, and the closed form that then applies."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    def applies(self, seen: Observation) -> None:
        if seen.knowledge.initial is None:
            raise NotApplicable("the server holds the weights that it made; there is no key")
        closed_form(seen).applies(seen)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        plain = _decrypted(seen.averaged())
        return closed_form(plain).reconstruct(plain)


def _decrypted(seen: Observation) -> Observation:
    """Return the observation of the initial weights, and of the update under no key."""
    victim, initial = ImageVictim.of(seen.model), seen.knowledge.initial
    assert initial is not None
    parts, held = victim.anatomy, weights(seen.model)
    embedding, position = f"{parts.patch_embedding}.weight", parts.position
    update, told = dict(seen.update), seen.knowledge.client_keys or {}
    if embedding in update:
        sent = update[embedding]
        keyed = sent.flatten(1).double().T  # the key times the plain update's transpose
        opened = (
            torch.linalg.solve(told["matrix"], keyed)
            if told
            else _opened(keyed, initial[embedding], held[embedding])
        )
        update[embedding] = opened.T.to(sent.dtype).view_as(sent)
    if position in update:
        order = told["order"].argsort() if told else _order(initial[position][0], held[position][0])
        update[position] = update[position][:, order]
    model = copy.deepcopy(seen.model)
    for name, weight in model.weights().items():
        weight.data.copy_(initial[name])
    return replace(
        seen,
        model=model,
        update=Update(update),
        knowledge=replace(seen.knowledge, initial=None),
    )


def _opened(keyed: Tensor, initial: Tensor, held: Tensor) -> Tensor:
    """Return the columns (pixels, width) that the key took to `keyed`.

    The key is what takes the initial weights to those held, each (width, pixels...).
    """
    plain, encrypted = (weight.flatten(1).double() for weight in (initial, held))
    # encrypted = plain @ key.T; what plain's rows do not span of the key is never seen
    key = torch.linalg.lstsq(plain, encrypted, driver="gelsd").solution.T
    return torch.linalg.lstsq(key, keyed, driver="gelsd").solution


def _order(plain: Tensor, encrypted: Tensor) -> Tensor:
    """Return which encrypted row (tokens, width) is each plain one, (tokens,) int64."""
    return torch.cdist(plain.double(), encrypted.double()).argmin(1)
