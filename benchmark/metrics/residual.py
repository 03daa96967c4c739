"""How far a search came by its own measure: what an attacker has to judge it by."""

from __future__ import annotations

from benchmark.metrics.base import Metric


def residual(told: float) -> float:
    """Return what the attack tells, which the harness cannot know better: see `Reconstruction`."""
    return told


RESIDUAL = Metric(
    "residual",
    "",
    "lower",
    "distance of a search's last gradients to those observed over that at its start, as it tells",
    residual,
    of="search",
    highest=float("inf"),
)
