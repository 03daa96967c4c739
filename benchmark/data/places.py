"""Where data may lie on this machine, and whether it is what the catalogue says."""

from __future__ import annotations

import os
from pathlib import Path

from benchmark.data.catalogue import Entry
from benchmark.errors import BenchmarkError, DataUnavailable

VARIABLE = "GRADLEAK_DATA"
"""The environment variable that names the mirror's folder."""


def mirror_folder(mirror: Path | None) -> Path | None:
    """Return the mirror's folder: the argument, else the environment's, else None."""
    if mirror is None and (named := os.environ.get(VARIABLE)):
        return Path(named)
    return mirror


def mirror_file(name: str, path: str, mirror: Path | None) -> Path:
    """Return a file of the mirror; DataUnavailable, with the path wanted, where it is not there."""
    if mirror is not None and (mirror / path).is_file():
        return mirror / path
    tried = f"{VARIABLE} (not set)" if mirror is None else str(mirror / path)
    raise DataUnavailable(name, [tried], f"{VARIABLE}=DIR, with DIR/{path}")


def check_digest(found: Entry, key: str, digest: str, origin: str) -> None:
    """Raise BenchmarkError where content is not the catalogue's; an unlisted key passes."""
    wanted = found.digest.get(key, digest)
    if digest != wanted:
        raise BenchmarkError(
            f"{found.name} {key} from {origin}: content has sha256 {digest}, "
            f"the catalogue wants {wanted}"
        )
