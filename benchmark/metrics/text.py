"""How much of a private batch of text is read, counted in tokens; true ids are 0 and more.

Every function takes sequences already paired (`sequence_assignment`). A token of -1 says that the
attack has none for that place: it is never right.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor


def sequence_assignment(truth: Tensor, answer: Tensor) -> Tensor:
    """Return, for each true sequence, the index of its own: the most tokens right, one to one.

    `answer[sequence_assignment(truth, answer)]` stands in the order of the truth. The answers are
    sorted first, so that their order does not even decide between equal assignments.

    Args:
        truth: (batch, length) int64.
        answer: as truth.

    Returns:
        (batch,) int64, a permutation.
    """
    import numpy as np
    import torch
    from scipy.optimize import linear_sum_assignment

    order = torch.as_tensor(np.lexsort(answer.T.numpy()))
    right = torch.stack([(answer[order] == sequence).sum(dim=1) for sequence in truth])
    _, columns = linear_sum_assignment(right.numpy(), maximize=True)
    return order[torch.as_tensor(columns)]


def total_accuracy(truth: Tensor, answer: Tensor, certain: Tensor) -> float:
    """Return the share of the tokens whose id and place are both right, no credit for either."""
    return float((answer == truth).double().mean())


def most_vulnerable_accuracy(truth: Tensor, answer: Tensor, certain: Tensor) -> float:
    """Return the total accuracy of the sequence that is read best."""
    return float((answer == truth).double().mean(dim=1).max())


def token_accuracy(truth: Tensor, answer: Tensor, certain: Tensor) -> float:
    """Return the share of the batch's tokens found anywhere, each as often as it occurs.

    That is the sum over ids of min(true count, count) / tokens, the accuracy of Deng et al., 2021.
    """
    common = Counter(truth.flatten().tolist()) & Counter(answer.flatten().tolist())
    return common.total() / truth.numel()


def unique_token_recall(truth: Tensor, answer: Tensor, certain: Tensor) -> float:
    """Return the share of the batch's different tokens that are found at all."""
    wanted = set(truth.flatten().tolist())
    return len(wanted & set(answer.flatten().tolist())) / len(wanted)


def tokens_leaked(truth: Tensor, answer: Tensor, certain: Tensor) -> float:
    """Return how many tokens are right in id and place."""
    return float((answer == truth).sum())


def certified_share(truth: Tensor, answer: Tensor, certain: Tensor) -> float:
    """Return the share of the tokens that the attack vouches for, right or wrong."""
    return float(certain.double().mean())


def certified_precision(truth: Tensor, answer: Tensor, certain: Tensor) -> float | None:
    """Return the share of the tokens vouched for that are right; None where there are none."""
    return float((answer == truth)[certain].double().mean()) if certain.any() else None


TOKEN_METRICS = (
    Metric(
        "total_accuracy",
        "",
        "higher",
        "share of the tokens right in id and place",
        total_accuracy,
        of="tokens",
    ),
    Metric(
        "most_vulnerable_accuracy",
        "",
        "higher",
        "total accuracy of the sequence read best",
        most_vulnerable_accuracy,
        of="tokens",
    ),
    Metric(
        "token_accuracy",
        "",
        "higher",
        "share of the tokens found in any place (bag of words)",
        token_accuracy,
        of="tokens",
    ),
    Metric(
        "unique_token_recall",
        "",
        "higher",
        "share of the different tokens found",
        unique_token_recall,
        of="tokens",
    ),
    Metric(
        "tokens_leaked",
        "tokens",
        "higher",
        "tokens right in id and place",
        tokens_leaked,
        of="tokens",
        highest=math.inf,
    ),
    Metric(
        "certified_share",
        "",
        "higher",
        "share of the tokens that the attack vouches for",
        certified_share,
        of="tokens",
    ),
    Metric(
        "certified_precision",
        "",
        "higher",
        "share of the tokens vouched for that are right; none without such",
        certified_precision,
        of="tokens",
    ),
)
