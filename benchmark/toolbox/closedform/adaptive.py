"""A closed form's answer with the prior that an attacker may add where the equations end."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from benchmark.contract import Observation
from benchmark.errors import NotApplicable
from benchmark.toolbox.closedform.completion import Frame, complete
from benchmark.toolbox.closedform.levels import snap
from benchmark.toolbox.closedform.posterior import Posterior
from benchmark.victims import ImageVictim

Prior = Literal["total_variation", "levels"]
"""Images of little total variation; and such as have their pixels stored as integers."""

_KNOWN = 3e-4  # normalised pixels, 0.02 levels: nothing is open


def check_prior(seen: Observation) -> None:
    """Raise NotApplicable where no prior of one whole image fits."""
    if seen.batch_size > 1:
        raise NotApplicable("a prior completes one image, not the mean of several")
    if ImageVictim.of(seen.model).anatomy.overlap:
        raise NotApplicable("patches that overlap are not completed")


def with_prior(plain: Tensor, posterior: Posterior, seen: Observation, prior: Prior) -> Tensor:
    """Return the patches (patches, pixels) that a prior makes of what a closed form knows.

    Where the equations leave nothing open, total variation changes nothing, and the form's own
    answer comes back.

    Args:
        plain: the closed form's own answer.
        posterior: of the patches.
        seen: names the victim, and the levels where they are asked for.
        prior: what is added.
    """
    frame = Frame.of(ImageVictim.of(seen.model))
    known = posterior.std().square().mean().sqrt() < _KNOWN
    patches = plain if known else complete(posterior, frame)
    return snap(posterior, frame, seen.pixel_levels, patches) if prior == "levels" else patches
