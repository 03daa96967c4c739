"""Decepticons of an update that was rounded, as the defense describes (Fowl et al., ICLR 2023).

The parameters and the reading are `decepticon`'s, but for two things that it takes from zeros:
that tokens whose row of the embedding's gradient is zero were not read, and that inputs whose
entries are zero were dropped. Rounding leaves zeros of its own: of 118 tokens in eight sequences,
four keep a row behind eight bits. So any token may have been read, and nothing was dropped.
"""

from __future__ import annotations

from dataclasses import dataclass

from benchmark.api import NotApplicable, Observation, Reconstruction
from submissions.attacks.decepticon.attack import Decepticon
from submissions.attacks.decepticon.tables import Tables

_ROUND = ("half_precision", "quantise")


@dataclass(frozen=True)
class DecepticonRounded(Decepticon):
    """Bins of all tokens, whatever the embedding's gradient holds."""

    def applies(self, seen: Observation) -> None:
        super().applies(seen)
        if seen.defense.get("name") not in _ROUND:
            raise NotApplicable("the defense describes no rounding")

    def reconstruct(self, seen: Observation) -> Reconstruction:
        return self.read(seen, Tables.of(seen.update, seen.model, seen.length, rounded=True))
