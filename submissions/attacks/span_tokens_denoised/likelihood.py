"""Which candidate stands at each place, by what the whole sequence leaves of a gradient.

With inputs X and any columns L a gradient G = L X^T + N is likeliest where |G P|^2 is least, P the
projection off the inputs: what is left, in units of the noise. One place's input changes it by the
energy that the gradient has along what that input has off all the others', so the places are put
right in turn, each by its best candidate, and no step makes the sequence less likely.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

_SWEEPS = 8  # over the places; a few settle it
_OFF = 1e-6  # of an input's square: less is off the others by rounding alone
_STRAY = 4.0  # standard deviations by which what noise leaves may stray
_CLEAR = 8.0  # standard deviations between a token beyond doubt and the next


class Likelihood:
    """A choice of candidates, begun with the first of each place.

    Args:
        gradient: (rows, width) float64, in units of its noise.
        inputs: (places, candidates, width) float64.
        generator: draws the order of the places.

    Attributes:
        choice: (places,) int64.
    """

    def __init__(self, gradient: Tensor, inputs: Tensor, generator: torch.Generator) -> None:
        self._rows, self._power = len(gradient), gradient.T @ gradient
        self._generator = generator
        self._inputs = functional.normalize(inputs, dim=2)
        self.choice = torch.zeros(len(inputs), dtype=torch.int64)
        self._settle()

    def climb(self) -> None:
        """Change one place at a time until no change is likelier."""
        for _ in range(_SWEEPS):
            changed = False
            for place in torch.randperm(len(self.choice), generator=self._generator).tolist():
                left, energy = self._told(place)
                best = int(energy.argmax())
                if energy[best] > energy[self.choice[place]]:
                    self._put(place, best, left[best])
                    changed = True
            if not changed:
                break
            self._settle()  # what rounding has gathered goes

    @property
    def stray(self) -> float:
        """By how many standard deviations what is left exceeds what noise alone would leave."""
        free = self._rows * (len(self._power) - len(self.choice))
        left = float((self._power * self._off).sum())
        return (left - free) / (2 * free) ** 0.5

    @property
    def fits_noise(self) -> bool:
        """Whether less is left than a true sequence leaves."""
        return self.stray < -_STRAY

    def certain(self) -> Tensor:
        """Return the places (places,) bool whose candidate is beyond doubt."""
        sure = torch.zeros(len(self.choice), dtype=torch.bool)
        if abs(self.stray) > _STRAY:
            return sure
        for place in range(len(sure)):
            best, second = self._told(place)[1].topk(2).values
            error = 2 * (self._rows + 2 * (best - self._rows).clamp_min(0))  # its variance
            sure[place] = best - second > _CLEAR * (2 * error) ** 0.5
        return sure

    def _told(self, place: int) -> tuple[Tensor, Tensor]:
        """Return what candidates have off the others' inputs, (k, width), and its energy, (k,)."""
        candidates, alone = self._inputs[place], self._alone(place)
        left = candidates @ self._off + torch.outer(candidates @ alone, alone)
        size = left.square().sum(1)
        return left, ((left @ self._power) * left).sum(1) / size.clamp_min(_OFF)

    def _put(self, place: int, candidate: int, left: Tensor) -> None:
        """Choose a candidate, whose part off the others' inputs is `left`, (width,)."""
        old, new = self._alone(place), functional.normalize(left, dim=0)
        self._off.addr_(old, old).addr_(new, new, alpha=-1)
        self._duals.addr_(old, old @ self._duals, alpha=-1)
        dual = left / left.square().sum()
        self._duals.addr_(dual, self._inputs[place, candidate] @ self._duals, alpha=-1)
        self._duals[:, place] = dual
        self.choice[place] = candidate

    def _alone(self, place: int) -> Tensor:
        """Return the direction (width,) that a place's input has off all others'."""
        return functional.normalize(self._duals[:, place], dim=0)

    def _settle(self) -> None:
        """Compute from the choice the inputs' duals (width, places) and the projection off them."""
        chosen = self._inputs[torch.arange(len(self.choice)), self.choice]
        self._duals = torch.linalg.pinv(chosen)
        off = torch.eye(len(self._power), dtype=chosen.dtype) - self._duals @ chosen
        self._off = (off + off.T) / 2
