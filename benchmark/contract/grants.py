"""What a threat model is made of, by name. Imports nothing heavy, so that listing is instant."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Server = Literal["honest_but_curious", "malicious"]


class Grant(StrEnum):
    """The closed list of facts a threat model may grant to an attack."""

    BATCH_SIZE = "batch_size"
    LABELS = "labels"
    DATA_STATISTICS = "data_statistics"
    PUBLIC_NETWORK = "public_network"  # an image prior that the attacker owns
    PUBLIC_IMAGES = "public_images"  # of the public split, with their labels
    TRAINED_INVERTER = "trained_inverter"  # from updates to images, of public data
    PIXEL_LEVELS = "pixel_levels"  # how many there are: 256 where images are of 8 bits
    LENGTH = "length"  # tokens of a sequence
    PUBLIC_TEXT = "public_text"  # tokens of the public split
    CLIENT_KEYS = "client_keys"  # what clients share behind a defense, told by one that colludes
    TRUTH = "truth"  # controls only: the oracle
    OTHER_UPDATE = "other_update"  # controls only: the wrong update


CONTROL_GRANTS = frozenset({Grant.TRUTH, Grant.OTHER_UPDATE})
