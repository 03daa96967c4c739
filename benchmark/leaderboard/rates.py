"""At which rate searches ran, whether it was tuned, and who was ranked without the same tuning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from benchmark.leaderboard.given import Given
from benchmark.leaderboard.markdown import DASH, Links, code
from benchmark.tunings import Tuning, Tunings, without_rate


@dataclass(frozen=True)
class Rates:
    """The rates of one protocol's attacks.

    Attributes:
        given: what each attack was given, by label.
        tunings: the protocol's.
    """

    given: Mapping[str, Given]
    tunings: Tunings

    def known(self, attack: str) -> bool:
        """Tell whether an attack is a search with a rate."""
        return self.given[attack].rate is not None

    def tuning(self, attack: str) -> Tuning | None:
        """Return the tuning that an attack's rate comes from; None where it was not tuned."""
        found, given = self.tunings.attacks.get(without_rate(attack)), self.given[attack]
        if found is None or found.version != given.version or found.rate != given.rate:
            return None
        return found

    def superseded(self, attack: str, others: Iterable[str]) -> bool:
        """Tell whether an attack ran at another rate than it was tuned to, and so did one tuned."""
        if not self.known(attack) or self.tuning(attack) is not None:
            return False
        mine = without_rate(attack)
        return any(without_rate(o) == mine and self.tuning(o) is not None for o in others)

    def told(self, attack: str, links: Links) -> str:
        """Return an attack's rate, and how it was chosen."""
        if not self.known(attack):
            return DASH
        if (tuning := self.tuning(attack)) is None:
            return f"{self.given[attack].rate:g}, not tuned"
        return links.to(str(tuning).removeprefix("rate "), self.tunings.path)

    def unequal(self, ranked: Iterable[str]) -> list[str]:
        """Return the searches that were ranked against one another without the same tuning."""
        searches = [attack for attack in ranked if self.known(attack)]
        tuned = [self.tuning(attack) for attack in searches]
        batches = {None if tuning is None else tuning.trials for tuning in tuned}
        return searches if len(searches) > 1 and (None in batches or len(batches) > 1) else []

    def warning(self, ranked: Iterable[str]) -> str:
        """Return who was ranked without the same tuning, in words; empty where none was."""
        unequal = self.unequal(ranked)
        named = [
            f"{code(attack)} ({self._state(self.tuning(attack))})" for attack in sorted(unequal)
        ]
        return f"Ranked without the same tuning: {', '.join(named)}." if named else ""

    def _state(self, tuning: Tuning | None) -> str:
        return "not tuned" if tuning is None else f"tuned on {tuning.trials} batches"
