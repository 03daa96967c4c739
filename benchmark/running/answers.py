"""Tensors that cross by a pipe, as the bytes of a safetensors file: never as a file.

They are sent from where they lie, and copied once where they come: the copies of safetensors' own
`save` and `load` took longer than all the rest of a crossing. They are read strictly: the header is
judged before anything is made of it, and what is wrong in any way is a ValueError.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from benchmark.contract import Reconstruction
from benchmark.errors import PluginError
from benchmark.running.channel import Line, one_line

_LONGEST_HEADER = 2**20
_TYPES = {
    **{torch.bool: "BOOL", torch.uint8: "U8", torch.int8: "I8", torch.int16: "I16"},
    **{torch.int32: "I32", torch.int64: "I64", torch.float16: "F16", torch.bfloat16: "BF16"},
    **{torch.float32: "F32", torch.float64: "F64"},
}
_NAMED = {name: kind for kind, name in _TYPES.items()}
_MOST_DIMENSIONS = 8
_LARGEST_SIDE = 2**32
_NAMES = ("images", "labels", "tokens", "certain")
_NUMBERS = ("gradient_evaluations", "residual")
Number = (
    Annotated[int, Field(strict=True, ge=-(2**53), le=2**53)]
    | Annotated[float, Field(strict=True, allow_inf_nan=False)]
)


class Said(BaseModel):
    """What a reconstruction says beside its tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    gradient_evaluations: Number | Line | None
    failure: Line | None
    residual: Number | Line | None = None


def pack_reconstruction(answer: Reconstruction) -> Sequence[memoryview]:
    """Return a reconstruction as parts of bytes, and of a failure its reason alone.

    Raises:
        PluginError: what is no tensor stands where one should; all else is judged by the harness.
    """
    given = {} if answer.failure is not None else {name: getattr(answer, name) for name in _NAMES}
    tensors = {name: tensor for name, tensor in given.items() if tensor is not None}
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise PluginError(f"returned {name} of type {type(tensor).__name__}; wanted a tensor")
    meta = {
        **{name: _number(getattr(answer, name)) for name in _NUMBERS},
        "failure": None if answer.failure is None else one_line(str(answer.failure)),
    }
    return pack(tensors, json.dumps(meta))


def _number(given: object) -> int | float | str | None:
    """Return a number as it is, and of all else, which the harness refuses, its words."""
    whole = isinstance(given, int | None) or (isinstance(given, float) and math.isfinite(given))
    return given if whole else one_line(str(given))  # type: ignore[return-value]


def unpack_reconstruction(data: memoryview) -> Reconstruction:
    """Read a reconstruction.

    Raises:
        ValueError: it is none.
    """
    tensors, meta = unpack(data, _NAMES)
    said = Said.model_validate_json(meta)
    given = {name: tensors.get(name) for name in _NAMES}
    return Reconstruction(**given, **said.model_dump())  # type: ignore[arg-type]


def pack_parameters(chosen: dict[str, Tensor]) -> Sequence[memoryview]:
    """Return the parameters that a malicious attack sends as parts of bytes."""
    return pack(chosen, "{}")


def unpack_parameters(data: memoryview, names: Collection[str]) -> dict[str, Tensor]:
    """Read them back, by name.

    Raises:
        ValueError: they are none, or one of them bears no such name.
    """
    return unpack(data, names)[0]


def pack(tensors: Mapping[str, Tensor], beside: str) -> Sequence[memoryview]:
    """Return tensors, by name, and what is said beside them: parts of bytes, in their order.

    Raises:
        PluginError: a tensor is of a type that does not cross.
    """
    header: dict[str, Any] = {"__metadata__": {"json": beside}}
    parts, end = list[memoryview](), 0
    for name, given in tensors.items():
        tensor = given.detach().cpu().contiguous()
        if tensor.dtype not in _TYPES:
            raise PluginError(f"{name} is of {tensor.dtype}, which does not cross")
        begin, end = end, end + tensor.nbytes
        offsets = {"data_offsets": [begin, end]}
        header[name] = {"dtype": _TYPES[tensor.dtype], "shape": list(tensor.shape), **offsets}
        parts.append(tensor.reshape(-1).view(torch.uint8).numpy().data)
    said = json.dumps(header).encode()
    said += b" " * (-len(said) % 8)
    return [memoryview(len(said).to_bytes(8, "little") + said), *parts]


def unpack(data: memoryview, names: Collection[str]) -> tuple[dict[str, Tensor], str]:
    """Return tensors of some names, by name, and what is said beside them.

    Raises:
        ValueError: that is not what the bytes are.
    """
    try:
        told, beside = _judged(data, names)
        tensors = {name: _copied(data, *where) for name, where in told.items()}
    except Exception as error:  # whatever strange bytes raise
        raise ValueError(f"no tensors: {one_line(str(error))}") from None
    return tensors, beside


_Where = tuple[torch.dtype, list[int], int]
"""Of a tensor: its type, its shape, and its first byte."""


def _judged(data: memoryview, names: Collection[str]) -> tuple[dict[str, _Where], str]:
    """Return where tensors lie, which fill the bytes one after the other, and what is said."""
    length = int.from_bytes(data[:8], "little")
    if not 2 <= length <= min(_LONGEST_HEADER, len(data) - 8):
        raise ValueError("a header longer than it may be")
    place = 8 + length
    header: dict[str, dict[str, Any]] = json.loads(bytes(data[8:place]))
    beside, found = header.pop("__metadata__")["json"], {}
    if not isinstance(beside, str):
        raise ValueError("no words beside the tensors")
    for name, told in header.items():
        shape, kind = told["shape"], _NAMED.get(told["dtype"])
        if name not in names or kind is None:
            raise ValueError("a tensor that was not asked for")
        sides = all(type(side) is int and 0 <= side < _LARGEST_SIDE for side in shape)
        if not sides or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("a shape that is none")
        found[name] = kind, shape, place
        begin, place = place, place + math.prod(shape) * kind.itemsize
        if told["data_offsets"] != [begin - 8 - length, place - 8 - length]:
            raise ValueError("bytes that are no tensor's")
    if place != len(data):
        raise ValueError("bytes that are no tensor's")
    return found, beside


def _copied(data: memoryview, kind: torch.dtype, shape: list[int], place: int) -> Tensor:
    """Return a tensor at an address of its own, as even as any other's."""
    whole = torch.empty(shape, dtype=kind)
    if whole.nbytes:
        there = torch.frombuffer(data, dtype=torch.uint8, count=whole.nbytes, offset=place)
        whole.view(-1).view(torch.uint8).copy_(there)
    return whole
