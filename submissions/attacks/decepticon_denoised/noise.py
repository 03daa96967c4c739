"""How strong a defense's noise is, by its public description alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmark.api import NotApplicable


def noise_share(defense: Mapping[str, Any], batch: int, entries: int) -> float:
    """Return the standard deviation of the noise on an entry, over the norm of what it is added to.

    Gradients are larger than any norm that clips them, because the server makes them so.

    Args:
        defense: the description, with its name.
        batch: sequences.
        entries: of the update.

    Raises:
        NotApplicable: it describes no noise.
    """
    name, share = defense.get("name"), 0.0
    if name == "clip_and_noise":
        share = defense["noise"] / defense["norm"]
    elif name == "dp_sgd":
        share = defense["noise"] / batch
    elif name in ("gaussian_noise", "laplacian_noise"):
        share = defense["scale"] / entries**0.5
    if share == 0:
        raise NotApplicable("the defense describes no noise to take off")
    return float(share)


def noise_of(share: float, norm: float, entries: int) -> float:
    """Return the noise's standard deviation on an entry.

    Args:
        share: of the norm of what was sent without it.
        norm: of what was sent.
        entries: of it.
    """
    return share * norm / (1 + entries * share**2) ** 0.5
