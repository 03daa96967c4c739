"""A number as a paper prints it: with its deviation, or as a bound."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, PositiveFloat, model_validator

_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_WRITTEN = re.compile(rf"(?P<bound>[<>] *)?(?P<mean>{_NUMBER})(?: ± (?P<std>{_NUMBER}))?")


@dataclass(frozen=True)
class Value:
    """What stands in a cell of a paper's table.

    Attributes:
        text: as it is printed.
        mean: the number, in the paper's unit; not a number where the paper has words.
        std: its standard deviation, where the paper prints one.
        bound: `above` or `below` where the paper says only that a number is more or less.
    """

    text: str
    mean: float = math.nan
    std: float | None = None
    bound: Literal["above", "below"] | None = None

    @classmethod
    def read(cls, written: str | float) -> Value:
        """Read `0.5`, `0.5 ± 0.1`, `> 0.5` or `< 0.5`; anything else is words."""
        text = str(written)
        found = _WRITTEN.fullmatch(text)
        if found is None:
            return cls(text)
        std = None if found["std"] is None else float(found["std"])
        mark = (found["bound"] or "").strip()
        bounds: dict[str, Literal["above", "below"]] = {">": "above", "<": "below"}
        return cls(text, float(found["mean"]), std, bounds.get(mark))


class Tolerance(BaseModel):
    """Within what two numbers are called the same; one of the three is said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    std: PositiveFloat | None = None
    """In standard deviations of the published number."""
    absolute: NonNegativeFloat | None = None
    """In the paper's unit."""
    factor: PositiveFloat | None = None
    """The larger over the smaller, of numbers above 0."""

    @model_validator(mode="before")
    @classmethod
    def _one_alone(cls, given: Any) -> Any:  # noqa: ANN401  (whatever stands in the file)
        if isinstance(given, dict) and len(given) != 1:
            raise ValueError("wanted one of std, absolute and factor")
        return given

    def holds(self, value: Value, number: float) -> bool:
        """Tell whether a number is the published one, as nearly as this asks."""
        apart = abs(number - value.mean)
        if self.absolute is not None:
            return apart <= self.absolute * (1 + 1e-9)  # rounding of the difference
        if self.factor is not None:
            pair = sorted((number, value.mean))
            return pair[0] > 0 and pair[1] / pair[0] <= self.factor
        return value.std is not None and apart <= (self.std or 1.0) * value.std

    def told(self, unit: str) -> str:
        """Return it in words, for numbers of a unit."""
        if self.absolute is not None:
            return f"within {self.absolute:g} {unit}".rstrip() if self.absolute else "exactly"
        if self.factor is not None:
            return f"within a factor of {self.factor:g}"
        return f"within {self.std:g} std of the paper's"


ONE_STD = Tolerance(std=1.0)
"""Where a paper prints a deviation and the ledger says no other."""
