"""Tensors that a child answers with, as the bytes of a safetensors file: never as a file.

They are read strictly: the header is judged before anything is made of it, and what is wrong in any
way is a ValueError.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from safetensors.torch import load, save
from torch import Tensor

from benchmark.contract import Reconstruction
from benchmark.errors import PluginError
from benchmark.running.channel import Line, one_line

_LONGEST_HEADER = 2**20
_TYPES = frozenset("BOOL U8 I8 I16 I32 I64 F16 BF16 F32 F64".split())
_MOST_DIMENSIONS = 8
_LARGEST_SIDE = 2**32
_NAMES = ("images", "labels", "tokens", "certain")
_SPENT = "gradient_evaluations"
Number = (
    Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
    | Annotated[float, Field(strict=True, allow_inf_nan=False)]
)


class Said(BaseModel):
    """What a reconstruction says beside its tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gradient_evaluations: Number | Line | None
    failure: Line | None


def pack_reconstruction(answer: Reconstruction) -> bytes:
    """Return a reconstruction as bytes, and of a failure its reason alone.

    Raises:
        PluginError: what is no tensor stands where one should; all else is judged by the harness.
    """
    given = {} if answer.failure is not None else {name: getattr(answer, name) for name in _NAMES}
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise PluginError(f"returned {name} of type {type(tensor).__name__}; wanted a tensor")
    spent, failure = answer.gradient_evaluations, answer.failure
    meta = {
        _SPENT: spent if isinstance(spent, int | float | None) else one_line(str(spent)),
        "failure": None if failure is None else one_line(str(failure)),
    }
    return save(plain(tensors), {"json": json.dumps(meta)})


def unpack_reconstruction(data: bytes) -> Reconstruction:
    """Read a reconstruction.

    Raises:
        ValueError: it is none.
    """
    tensors, meta = unpack(data, _NAMES)
    said = Said.model_validate_json(meta)
    given = {name: tensors.get(name) for name in _NAMES}
    return Reconstruction(**given, **said.model_dump())  # type: ignore[arg-type]


def pack_parameters(chosen: dict[str, Tensor]) -> bytes:
    """Return the parameters that a malicious attack sends as bytes."""
    return save(plain(chosen), {"json": "{}"})


def unpack_parameters(data: bytes, names: Collection[str]) -> dict[str, Tensor]:
    """Read them back, by name.

    Raises:
        ValueError: they are none, or one of them bears no such name.
    """
    return unpack(data, names)[0]


def plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors as a file holds them: on the processor, contiguous, none a view of another."""
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}


def unpack(data: bytes, names: Collection[str]) -> tuple[dict[str, Tensor], str]:
    """Return tensors of some names, by name, and what is said beside them.

    Raises:
        ValueError: that is not what the bytes are.
    """
    try:
        meta = _judged(data, names)
        tensors = {name: tensor.clone() for name, tensor in load(data).items()}
    except Exception as error:  # whatever strange bytes make a library raise
        raise ValueError(f"no tensors: {one_line(str(error))}") from None
    return tensors, meta


def _judged(data: bytes, names: Collection[str]) -> str:
    """Return what a header says beside its tensors; sizes are then held against the bytes."""
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(_LONGEST_HEADER, len(data) - 8):
        raise ValueError("a header longer than it may be")
    header: dict[str, dict[str, Any]] = json.loads(data[8 : 8 + length])
    meta = header.pop("__metadata__")["json"]
    for name, told in header.items():
        shape = told["shape"]
        sides = all(type(side) is int and 0 <= side < _LARGEST_SIDE for side in shape)
        if name not in names or told["dtype"] not in _TYPES:
            raise ValueError("a tensor that was not asked for")
        if not sides or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("a shape that is none")
    if not isinstance(meta, str):
        raise ValueError("no words beside the tensors")
    return meta
