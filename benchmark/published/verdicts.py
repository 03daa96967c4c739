"""What a published number and ours come to: the rules, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmark.published.values import Tolerance, Value
from benchmark.stats import LEAST_TRIALS

Kind = Literal[
    "reproduced",
    "better",
    "order reproduced",
    "not reproduced",
    "under budget",
    "too few trials",
    "not run",
]
Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Ours:
    """What was measured, in the paper's unit.

    Attributes:
        mean: over trials, which is what the papers print.
        std: sample standard deviation; None of one trial.
        median: over trials.
        n: trials.
        share: gradients spent over those of the paper, where both are known.
        exact: whether it is a count, to which trials add nothing.
    """

    mean: float
    std: float | None
    median: float
    n: int
    share: float | None = None
    exact: bool = False

    @property
    def enough(self) -> bool:
        """Whether so many trials carry a verdict."""
        return self.exact or self.n >= LEAST_TRIALS


@dataclass(frozen=True)
class NotRun:
    """That nothing was measured, and why.

    Attributes:
        reason: in words.
        due: whether a run would mend it.
    """

    reason: str
    due: bool = False


@dataclass(frozen=True)
class Verdict:
    """A kind, and what is to be said with it: a reason, or a share of the paper's steps."""

    kind: Kind
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


def judge(
    value: Value,
    ours: Ours | NotRun,
    *,
    better: Direction,
    tolerance: Tolerance,
    ordered: bool = False,
    number: bool = True,
) -> Verdict:
    """Return the verdict on one published number.

    Of under ten trials there is none but that they are too few, or, of a search that spent less
    than the paper's, that it is under its budget. A number within the tolerance is `reproduced`;
    one beyond it on the attacker's side is `better`, whatever it spent; of the others, one that
    stands to its column's others as in the paper is `order reproduced`, and one that is neither is
    `under budget` where less was spent, and `not reproduced` where not.

    Args:
        value: as published.
        ours: in the same unit, or why there is none.
        better: which side is better.
        tolerance: within which they are called the same; of a bound it has no say.
        ordered: whether it stands to the others as in the paper; see `in_order`.
        number: whether the numbers themselves can be compared, or their order alone.
    """
    if isinstance(ours, NotRun):
        return Verdict("not run", ours.reason)
    budget = _under_budget(ours)
    if not ours.enough:
        return budget or Verdict("too few trials", f"{ours.n} of {LEAST_TRIALS}")
    if value.bound is not None:
        met = ours.mean > value.mean if value.bound == "above" else ours.mean < value.mean
        return Verdict("reproduced") if met else budget or Verdict("not reproduced")
    if number and tolerance.holds(value, ours.mean):
        return Verdict("reproduced")
    if number and (ours.mean > value.mean) == (better == "higher"):
        return Verdict("better")
    if ordered:
        return Verdict("order reproduced")
    return budget or Verdict("not reproduced")


def _under_budget(ours: Ours) -> Verdict | None:
    if ours.share is None or ours.share >= 1:
        return None
    return Verdict("under budget", f"{100 * ours.share:.2g} % of the paper's steps")


Pair = tuple[Value, Ours | NotRun]


def in_order(one: Pair, others: Iterable[Pair]) -> bool:
    """Tell whether a number stands to the others of its column as in the paper.

    Compared are means of ten trials or more, of numbers that the paper has apart; with none to
    compare there is no order.
    """
    found = [agree for other in others if (agree := _agree(one, other)) is not None]
    return bool(found) and all(found)


def order(pairs: Sequence[Pair]) -> bool | None:
    """Tell whether a column's numbers all stand in the paper's order; None with none to compare."""
    each = (_agree(one, other) for i, one in enumerate(pairs) for other in pairs[:i])
    found = [agree for agree in each if agree is not None]
    return all(found) if found else None


def means(pair: Pair) -> tuple[float, float] | None:
    """Return the paper's number and ours, where both count in an order."""
    value, ours = pair
    if value.bound is not None or isinstance(ours, NotRun) or not ours.enough:
        return None
    return value.mean, ours.mean


def _agree(one: Pair, other: Pair) -> bool | None:
    """Tell whether two numbers stand to each other as in the paper; None where that is open."""
    first, second = means(one), means(other)
    if first is None or second is None or first[0] == second[0]:
        return None
    return _sign(first[0] - second[0]) == _sign(first[1] - second[1])


def _sign(number: float) -> int:
    return (number > 0) - (number < 0)
