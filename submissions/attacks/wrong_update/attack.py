"""Control: another trial's update through the strongest exact method that fits.

It marks what a reconstruction scores that is real data of the set, and the wrong one: a
metric or a data set on which it scores well cannot tell success from failure.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from benchmark.api import Attack, Grant, NotApplicable, Observation, Reconstruction
from submissions.attacks.position_closed_form.attack import PositionClosedForm
from submissions.attacks.span_closed_form.attack import SpanClosedForm
from submissions.attacks.span_tokens.attack import SpanTokens


@dataclass(frozen=True)
class WrongUpdate(Attack):
    """The position closed form where it applies, else the span's: of images, or of tokens."""

    needs: ClassVar = frozenset({Grant.BATCH_SIZE, Grant.OTHER_UPDATE})

    def applies(self, seen: Observation) -> None:
        if seen.model.track == "text":
            SpanTokens().applies(seen)

    def reconstruct(self, seen: Observation) -> Reconstruction:
        other = replace(seen, update=seen.knowledge.require(Grant.OTHER_UPDATE))
        if seen.model.track == "text":
            return SpanTokens().reconstruct(other)
        position = PositionClosedForm()
        try:
            position.applies(other)
        except NotApplicable:
            return SpanClosedForm().reconstruct(other)
        return position.reconstruct(other)
