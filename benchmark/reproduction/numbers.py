"""How numbers of both sides are written."""

from __future__ import annotations

from benchmark.leaderboard.markdown import DASH, NBSP, spread
from benchmark.published import NotRun, Ours
from benchmark.published.judged import Judged
from benchmark.stats import Estimate


def ours(each: Judged) -> str:
    """Return mean and deviation; the median too where the deviation exceeds the mean."""
    found = each.ours
    if isinstance(found, NotRun):
        return DASH
    if found.exact:
        return f"{found.mean:g}" if found.mean != round(found.mean) else f"{found.mean:.0f}"
    skewed = found.std is not None and found.std > abs(found.mean) > 0
    return _spread(found) + (f", median{NBSP}{found.median:.2g}" if skewed else "")


def trials(each: Judged) -> str:
    """Return their number."""
    if isinstance(each.ours, NotRun):
        return DASH
    return "exact" if each.ours.exact else str(each.ours.n)


def difference(each: Judged) -> str:
    """Return ours less the paper's."""
    if each.difference is None:
        return DASH
    number, unit = each.difference
    if number == 0:
        return "0"
    text = f"{number:+.2g}" if abs(number) < 100 else f"{number:+.0f}"
    return f"{text}{NBSP}{unit}".rstrip()


def _spread(found: Ours) -> str:
    return spread(Estimate(found.mean, found.std, None, None, found.n))
