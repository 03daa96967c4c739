"""The only source of randomness: seeds derived from a base seed and the names of their use."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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
