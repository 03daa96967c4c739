"""Where a protocol's adversary stands among the threat models A to H of Carletti et al.

SoK: Gradient Inversion Attacks in Federated Learning (USENIX Security 2025). Read here as: basic
knowledge is what a round's shape tells, training details are those of local training, surrogate
data is a public split in any form but its mean and deviation. No protocol tells the clients' own
distribution (E) or lets the server choose clients (H).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

NAMES = {
    "A": "eavesdropper",
    "B": "informed eavesdropper",
    "C": "parameter-aware eavesdropper",
    "D": "data-enhanced eavesdropper",
    "F": "active manipulator",
    "G": "data-enhanced manipulator",
}
SURROGATE = frozenset({"public_text", "public_images", "public_network", "trained_inverter"})
"""Grants made of data like the clients'."""


def threat_class(threat: Mapping[str, Any], federation: Mapping[str, Any]) -> str:
    """Return the letter of the least class that holds all a protocol grants.

    Args:
        threat: a frozen protocol's: server and grants.
        federation: likewise: the algorithm.
    """
    grants: Collection[str] = threat.get("grants") or ()
    surrogate = not SURROGATE.isdisjoint(grants)
    if threat.get("server") == "malicious":
        return "G" if surrogate else "F"
    if surrogate:
        return "D"
    if federation.get("algorithm") == "fedavg":
        return "C"
    return "B" if grants else "A"
