"""What became of each row of a stack, those that left it included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor


class Rows:
    """Keeps every row's best and last iterate.

    Args:
        values: at the start, (rows, numel).

    Attributes:
        running: the rows still in the stack, (running,) int64.
        spent: (rows,) gradients of the victim, of the rows that left.
        broken: why a row has no answer, by row.
    """

    def __init__(self, values: Tensor) -> None:
        self.running = torch.arange(len(values))
        self.spent = torch.zeros(len(values), dtype=torch.int64)
        self.broken: dict[int, str] = {}
        self._least = torch.full((len(values),), torch.inf, dtype=torch.float64)
        self._latest = self._least.clone()
        self._best, self._last = values.clone(), values.clone()

    def saw(self, values: Tensor, losses: Tensor) -> None:
        """Note the losses (running,) of the running rows at their values (running, numel)."""
        losses = losses.detach().cpu()
        self._latest[self.running] = losses
        better = (losses < self._least[self.running]).nonzero().squeeze(1)
        self._least[self.running[better]] = losses[better]
        self._best[self.running[better]] = values[better]

    def end(
        self, ending: Tensor, values: Tensor, spent: Tensor, broken: Mapping[str, Tensor]
    ) -> Tensor:
        """Let rows leave.

        Args:
            ending: (running,) bool.
            values: (running, numel), the last iterates.
            spent: (running,).
            broken: reason -> (running,) bool, rows that have no answer.

        Returns:
            The places of those that stay, (staying,) int64, on the device of `ending`.
        """
        gone = self.running[ending.cpu()]
        self._last[gone] = values[ending]
        self.spent[gone] = spent[ending].cpu()
        for reason, which in broken.items():
            self.broken |= dict.fromkeys(self.running[which.cpu()].tolist(), reason)
        self.running = self.running[~ending.cpu()]
        return (~ending).nonzero().squeeze(1)

    def loss(self, row: int, answer: Literal["least", "last"]) -> float:
        """Return what a row's answer is judged by; infinite for a broken one.

        The last iterate is judged by the loss one step before it: no gradient is spent on it.
        """
        if row in self.broken:
            return float("inf")
        return float((self._least if answer == "least" else self._latest)[row])

    def values(self, row: int, answer: Literal["least", "last"]) -> Tensor:
        """Return a row's answer, (1, numel)."""
        return (self._best if answer == "least" else self._last)[row : row + 1]
