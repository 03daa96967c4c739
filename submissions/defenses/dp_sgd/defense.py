"""DP-SGD (Abadi et al., CCS 2016): examples clipped one by one, Gaussian noise on their sum.

For images and text, where a sequence is an example. The guarantee is that of Opacus' accountant by
Renyi divergences, for a client that sends so many updates of batches sampled at that rate; it holds
of those who see all of them, the server too. Its batches are random samples; those of a protocol
are of a fixed size.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Annotated, Any

import numpy as np
import torch
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from benchmark.api import Batch, Defense, Update, Victim
from benchmark.toolbox.noise import add_noise, gaussian


@dataclass(frozen=True)
class DPSGD(Defense):
    """Clips each example's gradient and noises the mean."""

    clip: PositiveFloat = 1.0
    """Norm of an example's gradient, at most."""
    noise: NonNegativeFloat = 1.0
    """Standard deviation of the noise on the sum, in clipping norms; at 0 nothing is guaranteed."""
    sampling_rate: Annotated[float, Field(gt=0, le=1)] = 0.01
    """Of an example into a batch."""
    rounds: PositiveInt = 1000
    """Updates sent in all."""
    delta: Annotated[float, Field(gt=0, lt=1)] = 1e-5

    def compute_update(
        self,
        batch: Batch,
        model: Victim,
        gradient: Callable[[Batch], Update],
        draws: np.random.Generator,
    ) -> Update:
        clipped = [gradient(one).clipped(self.clip) for one in batch.examples()]
        count = len(clipped)
        mean = {name: torch.stack([one[name] for one in clipped]).mean(0) for name in clipped[0]}
        return add_noise(Update(mean), self.noise * self.clip / count, gaussian, draws)

    def describe(self) -> Mapping[str, Any]:
        return {**asdict(self), "epsilon": epsilon(self)}


@cache
def epsilon(defense: DPSGD) -> float | None:
    """Return the epsilon of a defense's delta, None where nothing is guaranteed."""
    if defense.noise == 0:
        return None
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(defense.noise, defense.sampling_rate, defense.rounds)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a bound in the thousands could be tighter
        return float(accountant.get_epsilon(defense.delta))
