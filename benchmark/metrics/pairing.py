"""Which reconstructed image answers to which true one: order within a batch carries no credit."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


def assignment(truth: Tensor, images: Tensor) -> Tensor:
    """Return, for each true image, the index of its own: the least total MSE, one to one.

    `images[assignment(truth, images)]` stands in the order of the truth.

    Args:
        truth: (batch, channel, height, width), finite.
        images: as truth.

    Returns:
        (batch,) int64, a permutation.
    """
    import torch

    if len(truth) == 1:
        return torch.zeros(1, dtype=torch.int64)
    from scipy.optimize import linear_sum_assignment

    # Not by way of a matrix product, which would cancel the digits of near images
    distances = torch.cdist(
        truth.double().flatten(1),
        images.double().flatten(1),
        compute_mode="donot_use_mm_for_euclid_dist",
    )
    _, columns = linear_sum_assignment(distances.square().cpu().numpy())
    return torch.as_tensor(columns)
