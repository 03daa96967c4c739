"""What a defense's price is told in, by track: accuracy of images, perplexity of text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """How prices of one track are told; what a defense costs is above zero in all of them.

    Attributes:
        name: of the figure.
        unit: said beside it.
        column: its heading.
        meaning: it, in a sentence's beginning.
        cost: heading of what a defense costs.
        scale: from a recorded number to the one that is told.
        higher: whether a higher figure is better.
        verb: of the sentence that tells a cost, which `spent` ends.
        spent: see above.
        brief: of a cost, beside a defense's name.
    """

    name: str
    unit: str
    column: str
    meaning: str
    cost: str
    scale: float
    higher: bool
    verb: str
    spent: str
    brief: str

    def lost(self, plain: float, held: float) -> float:
        """Return what a defense costs, from recorded numbers without and with it."""
        return self.scale * (plain - held if self.higher else held - plain)


_ACCURACY = Figure(
    name="accuracy",
    unit="%",
    column="Accuracy, %",
    meaning="Accuracy is that",
    cost="Lost",
    scale=100,
    higher=True,
    verb="loses",
    spent="points",
    brief="points lost",
)
_PERPLEXITY = Figure(
    name="perplexity",
    unit="lower is better",
    column="Perplexity",
    meaning="Perplexity is exp of the mean cross entropy, in nats, of a token",
    cost="Added",
    scale=1,
    higher=False,
    verb="adds",
    spent="to the perplexity",
    brief="of perplexity added",
)
FIGURES = {"vision": _ACCURACY, "text": _PERPLEXITY}
