"""No defense: the update is sent as computed."""

from dataclasses import dataclass

from benchmark.api import Defense


@dataclass(frozen=True)
class NoDefense(Defense):
    """Every hook is the identity."""
