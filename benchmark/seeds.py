"""The only source of randomness: seeds derived from a base seed and the names of their use.

What anyone may draw again, batches and victims, hangs on a seed. What a client draws in secret
hangs on a `Key` too, and of canaries all does.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import torch


def derive_seed(base: int, *parts: str | int) -> int:
    """Return a 63-bit seed that depends on the base seed and on every named part.

    Names keep streams apart: adding a consumer of randomness never moves another's draws.

    Example:
        >>> derive_seed(0, "trial", 3) == derive_seed(0, "trial", 3)
        True
        >>> derive_seed(0, "trial", 3) == derive_seed(0, "trial", 4)
        False
    """
    text = "\x1f".join(str(part) for part in (base, *parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(base: int, *parts: str | int) -> torch.Generator:
    """Return a CPU generator seeded by `derive_seed`.

    Draw on the CPU and move, so that a GPU sees the same numbers.
    """
    import torch

    return torch.Generator().manual_seed(derive_seed(base, *parts))


@contextmanager
def global_stream(draws: torch.Generator) -> Iterator[None]:
    """Let torch's global stream, which layers and dropout draw from, begin at a generator's draw.

    It is as it was afterwards.
    """
    import torch

    seed = int(torch.randint(2**62, (), generator=draws))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@dataclass(frozen=True)
class Key:
    """The base key of what clients draw in secret.

    The default is public, so that a record can be made again by anyone, and its noise drawn again
    by an attack that looks for it. Nobody draws again what another key gave.
    """

    material: bytes = field(default=b"gradleak", repr=False)

    @property
    def digest(self) -> str | None:
        """What records tell of it, in 16 hexadecimal digits; None of the public one."""
        if self == PUBLIC:
            return None
        return hashlib.sha256(b"digest\x1f" + self.material).hexdigest()[:16]

    def draws(self, *parts: str | int) -> np.random.Generator:
        """Return a generator of 128 bits of key that depend on the base key and on every part.

        Torch's own on the CPU keeps 32 bits of its seed, which are few enough to try.
        """
        import numpy as np

        digest = self._digest(*parts)
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "big")))

    def of(self, *parts: str | int) -> Key:
        """Return the key of one use, from which nobody learns this one or another use's."""
        return Key(self._digest("key", *parts))

    def base(self, seed: int) -> int:
        """Return what stands for a seed, as the base of `generator`, where nobody is to know it."""
        return int.from_bytes(self._digest("base", seed), "big")

    def _digest(self, *parts: str | int) -> bytes:
        text = "\x1f".join(str(part) for part in parts)
        return hmac.digest(self.material, text.encode(), "sha256")


PUBLIC = Key()
"""The key of whoever names no other."""
