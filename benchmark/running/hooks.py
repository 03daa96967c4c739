"""What crosses between the harness and an outside defense in its child, either way.

A hook's tensors are the bytes of a safetensors file, either way; beside them their order and the
state of the generator that the hook draws from. What comes out is judged here: who wrote it is not
believed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from typing import Annotated, Any, Literal, cast

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from benchmark.contract import Batch, Defense, ImageBatch, TextBatch
from benchmark.running.answers import Number, pack, unpack
from benchmark.running.channel import Line

Hook = Literal["protect_batch", "compute_update", "protect_update"]
CROSSING: tuple[Hook, ...] = ("protect_batch", "compute_update", "protect_update")
"""Hooks that are called in a child."""
OTHERS = ("keyed", "client_keys", "harden", "server_view", "client_view")
"""Hooks that cannot be: they hand back a model, or a defense that keeps something. `wire_bytes` is
asked by `utility` alone, where there is no wall."""
_BATCHES: dict[str, type[ImageBatch | TextBatch]] = {"vision": ImageBatch, "text": TextBatch}
_MOST_MASKED = 2**16  # patches, or tokens, a row of a mask
_Word = Annotated[int, Field(ge=0, lt=2**64)]
_Half = Annotated[int, Field(ge=0, lt=2**32)]


class _Philox(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    counter: tuple[_Word, _Word, _Word, _Word]
    key: tuple[_Word, _Word]


class State(BaseModel):
    """Where a generator of numpy's stands."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bit_generator: Literal["Philox"]
    state: _Philox
    buffer: tuple[_Word, _Word, _Word, _Word]
    buffer_pos: Annotated[int, Field(ge=0, le=4)]
    has_uint32: Annotated[int, Field(ge=0, le=1)]
    uinteger: _Half


class Crossed(BaseModel):
    """What stands beside the tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    order: tuple[str, ...]
    draws: State | None = None


class Introduction(BaseModel):
    """What a defense says of itself once it is loaded."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    hooks: Annotated[tuple[Line, ...], Field(max_length=16)]
    description: Annotated[
        dict[Line, Annotated[bool, Field(strict=True)] | Number | Line | None], Field(max_length=64)
    ]


def overridden(defense: Defense) -> tuple[str, ...]:
    """Return the hooks that a defense has of its own."""
    return tuple(
        name
        for name in (*CROSSING, *OTHERS)
        if getattr(type(defense), name) is not getattr(Defense, name)
    )


def packed(
    tensors: Mapping[str, Tensor], draws: np.random.Generator | None
) -> Sequence[memoryview]:
    """Return what a hook is given, or made, as parts of bytes."""
    return pack(tensors, _beside(tensors, draws))


def unpacked(data: memoryview, names: Collection[str]) -> tuple[dict[str, Tensor], State | None]:
    """Return what a hook is given, or made, in its order.

    Args:
        data: as they came.
        names: the tensors that there may be.

    Raises:
        ValueError: it is nothing of the kind.
    """
    tensors, beside = unpack(data, names)
    told = Crossed.model_validate_json(beside)
    if sorted(told.order) != sorted(tensors):
        raise ValueError("an order of other tensors")
    return {name: tensors[name] for name in told.order}, told.draws


def move(draws: np.random.Generator, state: State) -> np.random.Generator:
    """Set a generator to where another stands, and return it."""
    said = state.model_dump()
    said["state"] = {name: np.array(each, np.uint64) for name, each in said["state"].items()}
    said["buffer"] = np.array(said["buffer"], np.uint64)
    draws.bit_generator.state = said
    return draws


def parts(batch: Batch) -> dict[str, Tensor]:
    """Return the tensors of a batch by name."""
    named = ((part.name, getattr(batch, part.name)) for part in fields(cast("Any", batch)))
    return {name: tensor for name, tensor in named if tensor is not None}


def batch_of(tensors: Mapping[str, Tensor], track: str) -> Batch:
    """Return the batch of a track that tensors are the parts of."""
    return _BATCHES[track](**tensors)


def batch_fault(made: Mapping[str, Tensor], given: Batch, *, kinds: int) -> str | None:
    """Return in one line why tensors are no batch that a victim can be asked, or None.

    Args:
        made: by a hook.
        given: what it was given; it may leave out examples, and mask.
        kinds: of labels, or of tokens.
    """
    wanted = parts(given)
    if missing := sorted((wanted.keys() - {"masked"}) - made.keys()):
        return f"returned a batch without {missing[0]}"
    count = len(next(iter(made.values())))
    if not 0 < count <= len(given):
        return f"returned {count} examples; wanted 1 to {len(given)}"
    for name, tensor in made.items():
        like = wanted.get(name)
        if name == "masked":
            fits = tensor.dtype == torch.bool and tensor.dim() == 2
            fits = fits and len(tensor) == count and tensor.shape[1] <= _MOST_MASKED
        else:
            assert like is not None
            fits = tensor.dtype == like.dtype and tensor.shape == (count, *like.shape[1:])
        if not fits:
            return f"returned {name} {tuple(tensor.shape)} of {tensor.dtype}"
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return f"returned {name} that are not finite"
        if name in ("labels", "tokens") and not bool(((tensor >= 0) & (tensor < kinds)).all()):
            return f"returned {name} that are not from 0 to {kinds - 1}"
    return None


def _beside(tensors: Mapping[str, Tensor], draws: np.random.Generator | None) -> str:
    state = None
    if draws is not None:
        said = cast("Any", draws.bit_generator.state)
        told = json.loads(json.dumps(said, default=lambda each: each.tolist()))
        state = State.model_validate(told)
    return Crossed(order=tuple(tensors), draws=state).model_dump_json()
