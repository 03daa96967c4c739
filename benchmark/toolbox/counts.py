"""Whole numbers from shares: how often each label or word occurs."""

from __future__ import annotations

import torch
from torch import Tensor


def nearest_counts(quotas: Tensor, total: int) -> Tensor:
    """Return the counts >= 0 of a given sum nearest to the quotas in squares, (n,) int64."""
    counts = torch.zeros_like(quotas, dtype=torch.int64)
    for _ in range(total):  # greedy is optimal: the sum of squares is separable and convex
        counts[(quotas - counts).argmax()] += 1
    return counts
