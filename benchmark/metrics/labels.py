"""How many of the private labels an attack names."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from benchmark.metrics.base import Metric

if TYPE_CHECKING:
    from torch import Tensor


def label_accuracy(truth: Tensor, named: Tensor) -> float:
    """Return the share of the true labels that are named, each as often as it occurs.

    That is the sum over classes of min(named, true) / batch: order carries no credit, and one
    class named for all earns its own share alone.

    Args:
        truth: (batch,) int64.
        named: (batch,) int64; or empty, which is what the prior knows of labels: score 0. So a
            failed trial has 0. A completed one whose attack names no labels is not scored (None),
            and neither is any trial where labels are granted: there is nothing to infer.

    Returns:
        A number in [0, 1].
    """
    common = Counter(truth.tolist()) & Counter(named.tolist())
    return common.total() / len(truth)


LABEL_ACCURACY = Metric(
    "label_accuracy",
    "",
    "higher",
    "share of the private labels named, in any order",
    label_accuracy,
    of="labels",
)
