"""Where files of trained weights lie; nothing here downloads."""

from __future__ import annotations

import shlex
from pathlib import Path

from benchmark.data.places import mirror_file, mirror_folder
from benchmark.errors import DataUnavailable


def find_weights(file_name: str, url: str, mirror: Path | None = None) -> Path:
    """Return a file of weights, from the mirror's `weights/` or from torch hub's cache.

    Args:
        file_name: as it is called in either place.
        url: where it was published.
        mirror: folder of local copies; else the environment's GRADLEAK_DATA.

    Raises:
        DataUnavailable: with the command that would fetch it.
    """
    from torch import hub

    cached = Path(hub.get_dir()) / "checkpoints" / file_name
    try:
        return mirror_file(file_name, f"weights/{file_name}", mirror_folder(mirror))
    except DataUnavailable as error:
        if cached.is_file():
            return cached
        fetch = shlex.join(["curl", "-L", "--create-dirs", "-o", str(cached), url])
        raise DataUnavailable(file_name, [*error.tried, str(cached)], fetch) from error
