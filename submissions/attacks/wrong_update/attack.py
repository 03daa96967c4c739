"""Control: another trial's update through the strongest closed form that fits.

It marks what a reconstruction scores that is a real image of the data set, and the wrong one: a
metric or a data set on which it scores well cannot tell success from failure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from benchmark.api import Attack, Grant, NotApplicable, Observation, Reconstruction
from submissions.attacks.position_closed_form.attack import PositionClosedForm
from submissions.attacks.span_closed_form.attack import SpanClosedForm


@dataclass(frozen=True)
class WrongUpdate(Attack):
    """The position closed form where it applies, else the span closed form."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.OTHER_UPDATE})

    def reconstruct(self, seen: Observation) -> Reconstruction:
        other = replace(seen, update=seen.knowledge.require(Grant.OTHER_UPDATE))
        position = PositionClosedForm()
        try:
            position.applies(other)
        except NotApplicable:
            return SpanClosedForm().reconstruct(other)
        return position.reconstruct(other)
