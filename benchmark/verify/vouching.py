"""What a verification vouches for, kept as soon as it is known."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from math import isfinite

from benchmark.attestations import Attestation, Attestations, Part, Standing
from benchmark.records import Provenance
from benchmark.verify.rerun import Compared, largest_gaps
from benchmark.verify.sample import Stratum


class Voucher:
    """Attests parts that moved and changed no answer in any cell that was run again.

    No cell but those that carry a fingerprint has a say in it, so its attestation is written once
    the last of them is known, and outlives a verification that is killed later.

    Args:
        chosen: all that is to be compared.
        attested: where attestations are kept.
        standing: tells the present fingerprints.
        provenance: of what is made now.
    """

    def __init__(
        self,
        chosen: Iterable[Stratum],
        attested: Attestations,
        standing: Standing,
        provenance: Provenance,
    ) -> None:
        self._attested, self._standing, self._provenance = attested, standing, provenance
        self._left = Counter(moved for stratum in chosen for moved in stratum.moved.items())
        self._ran: dict[tuple[Part, str], list[Compared]] = defaultdict(list)
        self.made = 0

    def take(self, one: Compared) -> None:
        """Take what became of a stratum; each of those chosen once."""
        for moved in one.stratum.moved.items():
            self._left[moved] -= 1
            if one.same or one.word == "differs":
                self._ran[moved].append(one)
            if not self._left[moved]:
                self._decide(moved, self._ran.pop(moved, []))

    def _decide(self, moved: tuple[Part, str], ran: list[Compared]) -> None:
        part, was = moved
        now = self._standing.now(part)
        if now is None or not ran or not all(one.same for one in ran):
            return
        attestation = Attestation(
            part=part[0],
            name=part[1],
            version=now.version,
            old=was,
            new=now.fingerprint,
            cells=len(ran),
            trials=sum(len(one.stratum.records) for one in ran),
            # of a metric that one answer lacks, there is no difference to tell
            largest={n: gap for n, gap in sorted(largest_gaps(ran).items()) if isfinite(gap)},
            commit=self._provenance.commit,
            dirty=self._provenance.dirty,
        )
        self._attested.add(attestation)
        self.made += 1
