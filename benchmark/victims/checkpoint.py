"""Weights of a network from a file of tensors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmark.errors import BenchmarkError, DataUnavailable


def load_checkpoint(network: nn.Module, name: str, mirror: Path | None) -> None:
    """Replace every tensor of a network by a checkpoint's.

    Raises:
        DataUnavailable: no such file in the mirror.
        BenchmarkError: as `replace_weights`.
    """
    if mirror is None or not (mirror / name).is_file():
        place = "GRADLEAK_DATA (unset)" if mirror is None else str(mirror / name)
        raise DataUnavailable(f"checkpoint {name}", [place], f"put it at {name} in the mirror")
    replace_weights(network, mirror / name)


def replace_weights(network: nn.Module, path: Path) -> None:
    """Replace every tensor of a network by a file's.

    Raises:
        BenchmarkError: no file of tensors, or of another network; with the file and the key.
    """
    wanted, found = network.state_dict(), _tensors(path)
    for key in [*wanted, *found]:
        shapes = [tuple(t[key].shape) if key in t else "no tensor" for t in (found, wanted)]
        if shapes[0] != shapes[1]:
            raise BenchmarkError(f"{path}: {key} is {shapes[0]}; the network wants {shapes[1]}")
    network.load_state_dict(found)


def _tensors(path: Path) -> dict[str, Tensor]:
    """Read a state dict, of which each value is a tensor."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, SafetensorError, pickle.UnpicklingError) as error:
        raise BenchmarkError(f"{path}: no file of weights: {type(error).__name__}") from error
    content = content.get("state_dict", content) if isinstance(content, dict) else content
    if not isinstance(content, dict) or not all(isinstance(t, Tensor) for t in content.values()):
        raise BenchmarkError(f"{path}: no state dict; wanted tensors by name")
    return content
