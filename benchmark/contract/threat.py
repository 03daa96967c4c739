"""The one door between the truth and the attacker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from benchmark.contract.batch import ImageBatch
from benchmark.contract.grants import CONTROL_GRANTS, Grant, Server
from benchmark.contract.types import (
    Budget,
    DataStatistics,
    Knowledge,
    LocalTraining,
    Observation,
    Update,
)
from benchmark.contract.victim import Victim
from benchmark.errors import ProtocolError


@dataclass(frozen=True)
class ThreatModel:
    """Who the server is and the closed list of facts granted to it."""

    server: Server = "honest_but_curious"
    grants: frozenset[Grant] = frozenset()

    def __post_init__(self) -> None:
        if forbidden := self.grants & CONTROL_GRANTS:
            raise ProtocolError(f"a protocol cannot grant {', '.join(sorted(forbidden))}")

    def __str__(self) -> str:
        facts = ", ".join(sorted(grant.value for grant in self.grants)) or "nothing"
        return f"{self.server.replace('_', '-')} server, granted {facts}"

    def known(
        self,
        facts: Mapping[Grant, Any],
        defense: Mapping[str, Any],
        local: LocalTraining | None = None,
    ) -> Knowledge:
        """Return, of all the facts given, those granted, and what is known of defense and client.

        They are copies, for what an attack does to them stays its own; a network is too large to
        copy, and a change of it is noticed.
        """
        granted = {grant.value: _copied(facts[grant]) for grant in self.grants & facts.keys()}
        return Knowledge(defense=dict(defense), local=local, **granted)


def observe(
    threat: ThreatModel,
    *,
    update: Update,
    model: Victim,
    budget: Budget,
    generator: torch.Generator,
    facts: Mapping[Grant, Any],
    defense: Mapping[str, Any],
    control: Mapping[Grant, Any] | None = None,
    local: LocalTraining | None = None,
    later: tuple[Update, ...] = (),
    initial: Mapping[str, Tensor] | None = None,
) -> Observation:
    """Return what the attacker sees of one trial: of all the facts given, only those granted.

    Args:
        threat: decides which facts pass.
        update: what the client sent.
        model: the model as the server knows it.
        budget: what the attack may spend.
        generator: the attack's randomness.
        facts: by grant; each passes where granted. One that cannot be had is None.
        defense: the defense's public description; always passes.
        control: facts for a control alone (the truth, another trial's update).
        local: how the client trained; always passes.
        later: what the client sent in later rounds.
        initial: the weights that the server made, where it holds others; always pass.
    """
    known = threat.known(facts, defense, local)
    controlled = {grant.value: fact for grant, fact in (control or {}).items()}
    known = replace(known, initial=initial, **controlled)
    return Observation(update, model, known, budget, generator, later)


def _copied(fact: Any) -> Any:  # noqa: ANN401  (each grant has its own type)
    if isinstance(fact, Tensor):
        return fact.clone()
    if isinstance(fact, Mapping):
        return {name: tensor.clone() for name, tensor in fact.items()}
    if isinstance(fact, ImageBatch):
        return ImageBatch(fact.images.clone(), fact.labels.clone())
    if isinstance(fact, DataStatistics):
        return DataStatistics(fact.mean_image.clone(), fact.mean.clone(), fact.std.clone())
    return fact
