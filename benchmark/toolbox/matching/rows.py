"""What became of each row of a stack, those that left it included."""

from __future__ import annotations

import torch
from torch import Tensor


class Rows:
    """Keeps every row's last iterate, and the loss it is judged by.

    Args:
        values: at the start, (rows, numel).

    Attributes:
        running: the rows still in the stack, (running,) int64.
        values: (rows, numel), where each row that left ended.
        first: (rows,) float64, the loss at the start.
        losses: (rows,) float64, one step before its end: no gradient is spent on the last iterate.
            Infinite where a row has no answer.
        spent: (rows,) int64 gradients of the victim.
        apart: (rows, 2) float64, the objective without priors, first and last evaluated.
        broken: why a row has no answer, by row.
    """

    def __init__(self, values: Tensor) -> None:
        self.running = torch.arange(len(values))
        self.values = values.clone()
        self.first = torch.full((len(values),), torch.inf, dtype=torch.float64)
        self.losses = torch.full((len(values),), torch.inf, dtype=torch.float64)
        self.spent = torch.zeros(len(values), dtype=torch.int64)
        self.apart = torch.zeros(len(values), 2, dtype=torch.float64)
        self.broken: dict[int, str] = {}

    def end(
        self,
        ending: Tensor,
        broken: Tensor,
        reason: str,
        *,
        values: Tensor,
        losses: Tensor,
        spent: Tensor,
        apart: Tensor,
    ) -> Tensor:
        """Let rows leave.

        Args:
            ending: (running,) bool, which of the running rows.
            broken: (running,) bool, which have no answer.
            reason: why those have none.
            values: (running, numel).
            losses: (running,).
            spent: (running,).
            apart: (running,).

        Returns:
            The places of those that stay, (staying,) int64, on the device of `ending`.
        """
        gone = self.running[ending.cpu()]
        self.values[gone] = values[ending]
        self.losses[gone] = losses.masked_fill(broken, torch.inf)[ending].cpu()
        self.spent[gone] = spent[ending].cpu()
        self.apart[gone, 1] = apart[ending].cpu()
        self.broken |= dict.fromkeys(self.running[broken.cpu()].tolist(), reason)
        self.running = self.running[~ending.cpu()]
        return (~ending).nonzero().squeeze(1)
