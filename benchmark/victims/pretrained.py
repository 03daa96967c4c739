"""Where files of trained weights lie on this machine; a run never downloads by itself."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from benchmark.errors import BenchmarkError, DataUnavailable


def timm_file(name: str, mirror: Path | None) -> Path:
    """Return a timm model's weights, from the mirror or the model hub's cache.

    Args:
        name: of the model in timm, its tag included.
        mirror: the file is its `weights/NAME.safetensors`.

    Raises:
        DataUnavailable: with the command that would fetch them.
    """
    import timm
    from huggingface_hub import try_to_load_from_cache

    local, place = _in_mirror(f"{name}.safetensors", mirror)
    if local is not None:
        return local
    settings = timm.get_pretrained_cfg(name)
    repository = settings.hf_hub_id if settings else None
    cached = try_to_load_from_cache(repository, "model.safetensors") if repository else None
    if isinstance(cached, str):
        return Path(cached)
    raise DataUnavailable(
        f"pretrained weights of timm/{name}",
        [place, "the cache of the model hub"],
        f"python -c \"import timm; timm.create_model('{name}', pretrained=True)\"",
    )


def published_file(url: str, mirror: Path | None) -> Path:
    """Return a file as it was published, from the mirror's `weights/` or torch hub's cache.

    Raises:
        DataUnavailable: with the command that would put it into the cache.
    """
    from torch import hub

    file_name = url.rpartition("/")[2]
    cached = Path(hub.get_dir()) / "checkpoints" / file_name
    local, place = _in_mirror(file_name, mirror)
    if local is not None:
        return local
    if cached.is_file():
        return cached
    fetch = shlex.join(["curl", "-L", "--create-dirs", "-o", str(cached), url])
    raise DataUnavailable(file_name, [place, str(cached)], fetch)


def cache_folder() -> Path:
    """Return where what is made once is kept: GRADLEAK_CACHE, else the user's cache folder.

    That is `gradleak` under XDG_CACHE_HOME, else under ~/.cache (XDG Base Directory 0.8).
    """
    if named := os.environ.get("GRADLEAK_CACHE"):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gradleak"


def keep(file: Path, whole: bytes) -> None:
    """Write a file of the cache; a reader, or a kill, finds the whole of it or none.

    Raises:
        BenchmarkError: it cannot be written.
    """
    partial = file.with_name(f"{file.name}.{os.getpid()}.partial")
    try:
        partial.parent.mkdir(parents=True, exist_ok=True)
        try:
            partial.write_bytes(whole)
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)
    except OSError as error:
        raise BenchmarkError(f"{file}: cannot be written: {error.strerror}") from error


def _in_mirror(file_name: str, mirror: Path | None) -> tuple[Path | None, str]:
    """Return the mirror's file, or None, and the place looked at in words."""
    if mirror is None:
        return None, "GRADLEAK_DATA/weights (unset)"
    path = mirror / "weights" / file_name
    return (path if path.is_file() else None), str(path)
