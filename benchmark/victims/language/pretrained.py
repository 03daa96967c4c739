"""Where the trained language models lie on this machine; a run never downloads by itself."""

from __future__ import annotations

from pathlib import Path

from benchmark.errors import DataUnavailable


def model_folder(name: str, repository: str, mirror: Path | None) -> Path:
    """Return a folder with `config.json` and `model.safetensors`.

    Args:
        name: of the mirror's folder, `weights/NAME`.
        repository: at the model hub, whose local cache serves where the mirror has none.
        mirror: folder of local copies, if there is one.

    Raises:
        DataUnavailable: with the command that would fetch it.
    """
    from huggingface_hub import try_to_load_from_cache

    files = ("config.json", "model.safetensors")
    local = mirror / "weights" / name if mirror else None
    if local and all((local / file).is_file() for file in files):
        return local
    cached = [try_to_load_from_cache(repository, file) for file in files]
    if all(isinstance(file, str) for file in cached):
        return Path(str(cached[0])).parent
    place = str(local) if local else "GRADLEAK_DATA/weights (unset)"
    command = f"hf download {repository} {' '.join(files)}"
    tried = [place, "the cache of the model hub"]
    raise DataUnavailable(f"pretrained weights of {repository}", tried, command)
