"""Closed form, then matching: the whole update has its say on what its first layers told.

Source: derived for this benchmark. A closed form reads a few tensors of an update; under noise of
one variance the images whose whole gradient is nearest are the likeliest, and a search for them
that starts from the closed form's answer ends near it. An answer whose own gradient is the update
to float32's rounding stands as it is, and what does not lower the mismatch is not kept. Labels are
read off the head's gradient with the images in hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from benchmark.api import (
    Attack,
    Grant,
    ImageVictim,
    NotApplicable,
    Observation,
    Reconstruction,
    Stack,
    Update,
)
from benchmark.toolbox.gradients import gradient_of_images
from benchmark.toolbox.labels import labels_of_images
from benchmark.toolbox.matching import LBFGS, Search, SearchAttack, SquaredDistance, search
from submissions.attacks.batch_closed_form.attack import BatchClosedForm
from submissions.attacks.position_closed_form.attack import PositionClosedForm
from submissions.attacks.span_closed_form.attack import SpanClosedForm

_ROUNDING = 5e-6  # of the update's norm: float32 leaves some 1e-6


@dataclass(frozen=True)
class MatchedClosedForm(SearchAttack):
    """The closed form that applies, then L-BFGS on the squared distance of all gradients."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE})

    steps: int = 100

    def plan(self, seen: Observation) -> Search:
        return Search(SquaredDistance(), self.steps, LBFGS(history=20), rate=1.0)

    def applies(self, seen: Observation) -> None:
        closed_form(seen).applies(seen)
        head = f"{ImageVictim.of(seen.model).anatomy.head}.weight"
        if head not in seen.update:
            raise NotApplicable(f"the update holds no {head}")
        super().applies(seen)

    def reconstruct_stack(self, stack: Stack) -> list[Reconstruction]:
        stack = Stack([seen.averaged() for seen in stack])
        answers = [closed_form(seen).reconstruct(seen) for seen in stack]
        images = [_pixels(answer) for answer in answers]
        labels: list[Tensor | None] = [*map(labels_of_images, stack, images)]
        due = [i for i, seen in enumerate(stack) if not _explained(seen, images[i], labels[i])]
        found = (
            search(
                Stack([stack[i] for i in due]),
                self.plan(stack[0]),
                [labels[i] for i in due],
                self.matched(stack[0]),
                [images[i] for i in due],
            )
            if due
            else []
        )
        for i, matched in zip(due, found, strict=True):
            if matched.failure is None and matched.mismatch < 1:
                answers[i] = matched
        return answers


def _pixels(answer: Reconstruction) -> Tensor:
    assert answer.images is not None
    return answer.images.clamp(0, 1)


def _explained(seen: Observation, images: Tensor, labels: Tensor | None) -> bool:
    """Tell whether the gradient of these images is the update, but for float32's rounding."""
    assert labels is not None
    gradient = gradient_of_images(seen, images, labels)
    off = Update({name: each - seen.update[name] for name, each in gradient.items()})
    return off.norm() <= _ROUNDING * seen.update.norm()


def closed_form(seen: Observation) -> Attack:
    """Return the closed form that reads an update best."""
    if seen.batch_size > 1:
        return BatchClosedForm()
    if ImageVictim.of(seen.model).anatomy.position in seen.update:
        return PositionClosedForm()
    return SpanClosedForm()
