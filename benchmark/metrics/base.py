"""What a metric is. Files here import torch and the like inside functions: listing is light."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """One number on one image pair, on the labels, or on the tokens of one batch.

    Attributes:
        name: as protocols and records write it.
        unit: empty where the number has none.
        better: the direction of the better attack, that is, of more leakage.
        description: one line for a listing.
        score: (truth, image, **given) -> number, or None where it cannot be had. Both images are
            (channel, height, width), float, in [0, 1]; labels are (batch,) int64. Of tokens it is
            (truth, answer, certain, **given), each (batch, length), sequences paired. Of a search
            it is what the attack tells of it.
        given: the fields of the scorer that `score` takes besides, by name.
        of: what `score` is given: image pairs, one by one, or the labels or tokens of the whole
            batch.
        lowest: that it can be.
        highest: likewise.
        note: what makes its numbers incomparable with another paper's; empty where nothing does.
    """

    name: str
    unit: str
    better: Literal["higher", "lower"]
    description: str
    score: Callable[..., float | None]
    given: tuple[str, ...] = ()
    of: Literal["images", "labels", "tokens", "search"] = "images"
    lowest: float = 0.0
    highest: float = 1.0
    note: str = ""
