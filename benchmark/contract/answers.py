"""What an attack's answer to one trial must be; whatever it returned is met here."""

from __future__ import annotations

from typing import Any

import torch

from benchmark.contract.types import Budget, Reconstruction

_LONGEST_REASON = 200  # characters of an attack's own words


def fault(
    answer: Reconstruction, *, shape: tuple[int, ...], classes: int, budget: Budget
) -> str | None:
    """Return in one line why an answer is a failed trial, or None where it can be scored.

    Args:
        answer: its fields may hold anything.
        shape: (batch, channel, height, width) of the private batch.
        classes: labels are from 0 to below this.
        budget: what the trial was granted.
    """
    spent: Any = answer.gradient_evaluations
    if not is_count(spent):
        return f"returned {spent!r:.40} gradient evaluations; wanted a whole number"
    if answer.failure is not None:
        said: Any = answer.failure
        line = " ".join(said.split()) if isinstance(said, str) else ""
        return line[:_LONGEST_REASON] or "gave up without a reason"
    if spent > budget.gradient_evaluations:
        return f"spent {spent} gradient evaluations; the budget is {budget.gradient_evaluations}"
    if wrong := _unlike("images", answer.images, shape, torch.float32):
        return wrong
    if not bool(answer.images.isfinite().all()):
        return "returned images that are not finite"
    if answer.labels is None:
        return None
    return _wrong_labels(answer.labels, shape[0], classes)


def is_count(spent: object) -> bool:
    """Tell whether a number of gradient evaluations is one."""
    return isinstance(spent, int) and spent >= 0


def _wrong_labels(labels: torch.Tensor, batch: int, classes: int) -> str | None:
    if wrong := _unlike("labels", labels, (batch,), torch.int64):
        return wrong
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        return f"returned labels from {low} to {high}; wanted 0 to {classes - 1}"
    return None


def _unlike(
    name: str,
    tensor: Any,  # noqa: ANN401  (whatever an attack returned)
    shape: tuple[int, ...],
    dtype: torch.dtype,
) -> str | None:
    """Return why a value is no dense tensor of this shape and type, or None."""
    if not isinstance(tensor, torch.Tensor):
        return f"returned {name} of type {type(tensor).__name__}; wanted a tensor"
    if tensor.layout != torch.strided or tensor.is_meta:
        return f"returned {name} without values of their own; wanted a dense tensor"
    if tensor.shape != shape:
        return f"returned {name} {tuple(tensor.shape)}; wanted {shape}"
    if tensor.dtype != dtype:
        return f"returned {name} of {tensor.dtype}; wanted {dtype}"
    return None
