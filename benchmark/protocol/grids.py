"""Protocols that differ in little, written from one grid file: every combination of its axes.

    python -m benchmark.protocol.grids

writes them all anew; they are committed beside the grids.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from string import Template
from typing import Literal

from pydantic import BaseModel, ConfigDict

from benchmark.documents import Document, Keys, read_document
from benchmark.errors import ProtocolError
from benchmark.protocol.places import PROTOCOLS

Fields = dict[str, str | int]
Axes = dict[str, tuple[str, ...]]


class _FrozenGrid(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Exemption(_FrozenGrid):
    """Fields of the combinations that have one of these values on each of these axes."""

    where: Axes
    fields: Fields


class Part(_FrozenGrid):
    """Every combination of these values of the axes."""

    each: Axes
    fields: Fields = {}
    exceptions: tuple[Exemption, ...] = ()


class Grid(_FrozenGrid):
    """What a file of `protocols/grids/` says.

    Fields are filled into the template, and may name one another; `name` is the protocol's, and an
    axis itself is one. A later axis' wins over an earlier's, a part's over those, an exception's
    over all. Lines that come out empty are left out.
    """

    name: str
    folder: Literal["vision", "text"]
    template: str
    fields: Fields = {}
    axes: dict[str, dict[str, Fields]]
    parts: tuple[Part, ...]


def grid_files(folder: Path = PROTOCOLS) -> list[Path]:
    """Return every grid's file."""
    return sorted((folder / "grids").glob("*.yaml"))


def expand(path: Path) -> dict[Path, str]:
    """Return what a grid's protocols hold, by their files.

    Raises:
        ProtocolError: a file that does not fit the schema, a value that its axis has not, a field
            that is not given, or one protocol twice.
    """
    document = read_document(path)
    grid = document.fit(Grid)
    files: dict[Path, str] = {}
    for number, part in enumerate(grid.parts):
        _check(document, ("parts", number, "each"), part.each, grid.axes)
        for which, exception in enumerate(part.exceptions):
            keys = ("parts", number, "exceptions", which, "where")
            _check(document, keys, exception.where, part.each)
        for chosen in _combinations(part):
            fields = _fields(grid, part, chosen)
            file = path.parent.parent / grid.folder / f"{_filled(path, '$name', fields)}.yaml"
            if file in files:
                raise ProtocolError(f"{path}: {file.stem} comes out twice")
            head = f"# From grids/{path.name}, by python -m benchmark.protocol.grids\n"
            files[file] = head + _filled(path, grid.template, fields)
    return files


def write(folder: Path = PROTOCOLS) -> None:
    """Write the protocols of all grids."""
    for path in grid_files(folder):
        for file, text in expand(path).items():
            file.write_text(text, encoding="utf-8")


def _check(
    document: Document, keys: Keys, chosen: Axes, known: Mapping[str, Collection[str]]
) -> None:
    """Raise ProtocolError where an axis, or a value of it, is not known."""
    for axis, values in chosen.items():
        for value in values:
            if value not in known.get(axis, ()):
                raise document.wrong((*keys, axis), f"{axis} has no {value!r}")


def _combinations(part: Part) -> Iterator[dict[str, str]]:
    for values in itertools.product(*part.each.values()):
        yield dict(zip(part.each, values, strict=True))


def _fields(grid: Grid, part: Part, chosen: Mapping[str, str]) -> Fields:
    fields: Fields = {**grid.fields, **chosen}
    for axis, values in grid.axes.items():
        if axis in chosen:
            fields |= values[chosen[axis]]
    fields |= part.fields
    for exception in part.exceptions:
        if all(chosen.get(axis) in values for axis, values in exception.where.items()):
            fields |= exception.fields
    return fields


def _filled(path: Path, text: str, fields: Fields) -> str:
    for _ in range(len(fields) + 1):  # one may name another
        if "$" not in text:
            break
        try:
            text = Template(text).substitute(fields)
        except KeyError as error:
            raise ProtocolError(f"{path}: no field {error}") from error
        except ValueError as error:
            raise ProtocolError(f"{path}: {error}") from error
    else:
        raise ProtocolError(f"{path}: fields that name one another in a circle")
    return "".join(line for line in text.splitlines(keepends=True) if line.strip())


if __name__ == "__main__":
    write()
