"""The one door between the truth and the attacker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from benchmark.contract.types import (
    CONTROL_GRANTS,
    Budget,
    DataStatistics,
    Grant,
    Knowledge,
    Observation,
    Update,
)
from benchmark.errors import ProtocolError


@dataclass(frozen=True)
class ThreatModel:
    """Who the server is and the closed list of facts granted to it."""

    server: Literal["honest_but_curious"] = "honest_but_curious"
    grants: frozenset[Grant] = frozenset()

    def __post_init__(self) -> None:
        if forbidden := self.grants & CONTROL_GRANTS:
            raise ProtocolError(f"a protocol cannot grant {', '.join(sorted(forbidden))}")

    def __str__(self) -> str:
        facts = ", ".join(sorted(grant.value for grant in self.grants)) or "nothing"
        return f"{self.server.replace('_', '-')} server, granted {facts}"


def observe(
    threat: ThreatModel,
    *,
    update: Update,
    model: nn.Module,
    budget: Budget,
    generator: torch.Generator,
    batch_size: int,
    labels: torch.Tensor,
    data_statistics: DataStatistics,
    defense: Mapping[str, Any],
    public_network: nn.Module | None = None,
    control: Mapping[Grant, Any] | None = None,
) -> Observation:
    """Return what the attacker sees of one trial: of all the facts given, only those granted.

    Args:
        threat: decides which facts pass.
        update: what the client sent.
        model: the model as the server knows it.
        budget: what the attack may spend.
        generator: the attack's randomness.
        batch_size: passes where granted.
        labels: (batch,) int64; pass where granted.
        data_statistics: pass where granted.
        defense: the defense's public description; always passes.
        public_network: passes where granted, itself and no copy; None where it cannot be had.
        control: facts for a control alone (the truth, another trial's update).
    """
    statistics = (data_statistics.mean_image, data_statistics.mean, data_statistics.std)
    facts = {  # copies: what an attack does to them stays its own
        Grant.BATCH_SIZE: batch_size,
        Grant.LABELS: labels.clone(),
        Grant.DATA_STATISTICS: DataStatistics(*(tensor.clone() for tensor in statistics)),
        Grant.PUBLIC_NETWORK: public_network,  # too large to copy; a change is noticed
    }
    granted: dict[str, Any] = {
        grant.value: fact for grant, fact in facts.items() if grant in threat.grants
    }
    granted |= {grant.value: fact for grant, fact in (control or {}).items()}
    knowledge = Knowledge(defense=dict(defense), **granted)
    return Observation(update, model, knowledge, budget, generator)
