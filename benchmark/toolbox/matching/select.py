"""Which parameters a search matches, and how much each counts, said by a victim's anatomy.

Each rule gives names that an update may lack (a defense withheld them); `match` keeps those that
were sent.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import nn

from benchmark.victims import LanguageVictim, anatomy, language_anatomy


def of_positions(model: nn.Module, names: Iterable[str]) -> frozenset[str]:
    """Return the name of the positions, where they are trained and were sent."""
    parts = language_anatomy(model) if isinstance(model, LanguageVictim) else anatomy(model)
    return frozenset(names) & {parts.position}


def by_order(names: Iterable[str]) -> dict[str, float]:
    """Return weights on a line from 1 at the first name to 0 after the last."""
    listed = list(names)
    return {name: 1 - i / len(listed) for i, name in enumerate(listed)}
