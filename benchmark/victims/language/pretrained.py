"""Where models of the hub lie on this machine; a run never downloads by itself."""

from __future__ import annotations

from pathlib import Path

from benchmark.errors import DataUnavailable

_FILES = ("config.json", "model.safetensors")


def model_folder(
    name: str, repository: str, mirror: Path | None, files: tuple[str, ...] = _FILES
) -> Path:
    """Return a folder with a model's files.

    Args:
        name: of the mirror's folder, `weights/NAME`.
        repository: at the model hub, whose local cache serves where the mirror has none.
        mirror: folder of local copies, if there is one.
        files: that are wanted.

    Raises:
        DataUnavailable: with the command that would fetch it.
    """
    from huggingface_hub import try_to_load_from_cache

    local = mirror / "weights" / name if mirror else None
    if local and all((local / file).is_file() for file in files):
        return local
    cached = [try_to_load_from_cache(repository, file) for file in files]
    if all(isinstance(file, str) for file in cached):
        return Path(str(cached[0])).parent
    place = str(local) if local else "GRADLEAK_DATA/weights (unset)"
    command = f"hf download {repository} {' '.join(files)}"
    tried = [place, "the cache of the model hub"]
    wanted = "pretrained weights" if files == _FILES else " and ".join(files)
    raise DataUnavailable(f"{wanted} of {repository}", tried, command)
