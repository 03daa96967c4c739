"""What an attack's answer and a defense's update must be; whatever came is met here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from benchmark.contract.types import Budget, Reconstruction, Update

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
    if wrong := _gave_up(answer, budget) or _unlike("images", answer.images, shape, torch.float32):
        return wrong
    assert answer.images is not None
    if not bool(answer.images.isfinite().all()):
        return "returned images that are not finite"
    if answer.labels is None:
        return None
    return _unlike("labels", answer.labels, shape[:1], torch.int64) or _beyond(
        "labels", answer.labels, 0, classes
    )


def text_fault(
    answer: Reconstruction, *, shape: tuple[int, ...], vocabulary: int, budget: Budget
) -> str | None:
    """Return in one line why an answer of text is a failed trial, or None.

    Args:
        answer: its fields may hold anything.
        shape: (batch, length) of the private batch.
        vocabulary: tokens are from 0 to below this; -1 stands where the attack names none.
        budget: what the trial was granted.
    """
    if wrong := _gave_up(answer, budget) or _unlike("tokens", answer.tokens, shape, torch.int64):
        return wrong
    assert answer.tokens is not None
    if wrong := _beyond("tokens", answer.tokens, -1, vocabulary):
        return wrong
    if answer.certain is None:
        return None
    return _unlike("certain", answer.certain, shape, torch.bool)


def update_fault(sent: object, weights: Mapping[str, torch.Tensor]) -> str | None:
    """Return in one line why what a defense sends is no update of a victim, or None.

    Values are not read.

    Args:
        sent: anything.
        weights: the victim's, by name; any of them may be withheld.
    """
    if not isinstance(sent, Update):
        return f"returned a {type(sent).__name__}; wanted an Update"
    for name, tensor in sent.items():
        if name not in weights:
            return f"returned {name}, which is no parameter of the victim"
        weight = weights[name]
        if wrong := _unlike(name, tensor, tuple(weight.shape), weight.dtype):
            return wrong
        if tensor.device != weight.device:
            return f"returned {name} on {tensor.device}; wanted {weight.device}"
    return None


def first_not_finite(update: Update) -> str | None:
    """Return the name of the first tensor of an update that holds NaN or infinity, or None."""
    return next((name for name, each in update.items() if not _finite(each)), None)


def _finite(tensor: Tensor) -> bool:
    """Tell whether all of a tensor is finite; a finite sum says so in a tenth of the time."""
    return bool(tensor.sum().isfinite()) or bool(tensor.isfinite().all())


def is_count(spent: object) -> bool:
    """Tell whether a number of gradient evaluations is one."""
    return isinstance(spent, int) and spent >= 0


def _gave_up(answer: Reconstruction, budget: Budget) -> str | None:
    spent: Any = answer.gradient_evaluations
    if not is_count(spent):
        return f"returned {spent!r:.40} gradient evaluations; wanted a whole number"
    if answer.failure is not None:
        said: Any = answer.failure
        line = " ".join(said.split()) if isinstance(said, str) else ""
        return line[:_LONGEST_REASON] or "gave up without a reason"
    if spent > budget.gradient_evaluations:
        return f"spent {spent} gradient evaluations; the budget is {budget.gradient_evaluations}"
    residual: Any = answer.residual
    if residual is not None and not (isinstance(residual, float) and 0 <= residual < math.inf):
        return f"returned the residual {residual!r:.40}; wanted a finite float from 0 on"
    return None


def _beyond(name: str, numbers: torch.Tensor, first: int, end: int) -> str | None:
    low, high = int(numbers.min()), int(numbers.max())
    if low < first or high >= end:
        return f"returned {name} from {low} to {high}; wanted {first} to {end - 1}"
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
