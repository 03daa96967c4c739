"""Protocols and suites from YAML; an unknown key is an error with file and line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import yaml
from pydantic import ValidationError

from benchmark.errors import ProtocolError
from benchmark.protocol.settings import Protocol, Suite, TextProtocol, VisionProtocol

PROTOCOLS = Path(__file__).resolve().parent.parent.parent / "protocols"
_TRACKS: dict[str, type[Protocol]] = {"vision": VisionProtocol, "text": TextProtocol}

_Settings = TypeVar("_Settings", Protocol, Suite)


def protocol_files(folder: Path = PROTOCOLS) -> dict[str, Path]:
    """Return every protocol's file by the protocol's name."""
    return _files(folder, suites=False)


def suite_files(folder: Path = PROTOCOLS) -> dict[str, Path]:
    """Return every suite's file by the suite's name."""
    return _files(folder, suites=True)


def load_protocol(name_or_path: str) -> Protocol:
    """Load a protocol by its name, or by the path of a YAML file.

    Raises:
        ProtocolError: no such protocol, or a file that does not fit the schema.
    """
    path = _find(name_or_path, protocol_files(), "protocol")
    return _load(path, Protocol)


@dataclass(frozen=True)
class SuitePart:
    """Protocols that run by the same choices; an empty choice of attacks or defenses is none."""

    protocols: tuple[Protocol, ...]
    attacks: tuple[str, ...] = ()
    defenses: tuple[str, ...] = ()
    trials: int | None = None
    leave_out: tuple[str, ...] = ()


def load_suite(name_or_path: str) -> list[SuitePart]:
    """Load a suite, part by part, or the one protocol of that name or path.

    Raises:
        ProtocolError: no such suite or protocol, a suite within itself, or a file that does not
            fit the schema.
    """
    return list(_parts(name_or_path, ()))


def protocols_of(suite: str) -> list[str]:
    """Return the names of a suite's protocols, those of its suites too."""
    return [protocol.name for part in load_suite(suite) for protocol in part.protocols]


def _parts(name: str, outer: tuple[str, ...]) -> Iterator[SuitePart]:
    suites, protocols = suite_files(), protocol_files()
    if name not in suites:
        path = _find(name, {**suites, **protocols}, "suite or protocol")
        yield SuitePart((_load(path, Protocol),))
        return
    if name in outer:
        raise ProtocolError(f"{suites[name]}: the suite {name} is within itself")
    suite = _load(suites[name], Suite)
    if suite.protocols:
        own = tuple(load_protocol(one) for one in suite.protocols)
        yield SuitePart(own, suite.attacks, suite.defenses, suite.trials, suite.leave_out)
    for inner in suite.suites:
        if inner not in suites:
            raise ProtocolError(f"{suites[name]}: no suite {inner!r}; known: {', '.join(suites)}")
        yield from _parts(inner, (*outer, name))


def _files(folder: Path, *, suites: bool) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.yaml")):
        if (path.parent.name == "suites") != suites:
            continue
        if path.stem in files:
            raise ProtocolError(f"{path}: the name {path.stem} is taken by {files[path.stem]}")
        files[path.stem] = path
    return files


def _find(name_or_path: str, files: dict[str, Path], kind: str) -> Path:
    if name_or_path in files:
        return files[name_or_path]
    if name_or_path.endswith((".yaml", ".yml")):
        return Path(name_or_path)
    raise ProtocolError(f"no {kind} {name_or_path!r}; known: {', '.join(sorted(files))}")


def _load(path: Path, settings: type[_Settings]) -> _Settings:
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
        lines = _lines(node, path)
    except OSError as error:
        raise ProtocolError(f"{path}: cannot be read: {error.strerror}") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else str(path)
        problem = getattr(error, "problem", None) or "not YAML"
        raise ProtocolError(f"{where}: malformed YAML: {problem}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, no such date, an alias in itself
        raise ProtocolError(f"{path}: malformed YAML: {error}") from error
    if not isinstance(content, dict):
        raise ProtocolError(f"{path}:1: wanted a mapping of keys, got {type(content).__name__}")
    try:
        chosen = _of_track(content, path, lines) if settings is Protocol else settings
        loaded = chosen.model_validate(content)
    except ValidationError as error:
        raise ProtocolError(_first_problem(error, lines, path)) from error
    except ProtocolError as error:
        raise ProtocolError(f"{path}: {error}") from error
    if loaded.name != path.stem:
        raise ProtocolError(f"{path}:{lines['name',]}: name {loaded.name!r} is not the file's own")
    return loaded


def _of_track(
    content: dict[str, object], path: Path, lines: dict[tuple[str | int, ...], int]
) -> type[Protocol]:
    track = content.get("track", "vision")
    if not isinstance(track, str) or track not in _TRACKS:
        line = lines["track",]
        raise ProtocolError(f"{path}:{line}: track: wanted {' or '.join(_TRACKS)}, got {track!r}")
    return _TRACKS[track]


def _lines(node: yaml.Node | None, path: Path) -> dict[tuple[str | int, ...], int]:
    """Return the line of every key of a document, by the keys that lead to it."""
    lines: dict[tuple[str | int, ...], int] = {}

    def walk(node: yaml.Node, keys: tuple[str | int, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*keys, key.value)
                line = key.start_mark.line + 1
                if here in lines:
                    raise ProtocolError(f"{path}:{line}: the key {key.value!r} stands twice")
                lines[here] = line
                walk(value, here)
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                lines[*keys, i] = value.start_mark.line + 1
                walk(value, (*keys, i))

    if node is not None:
        walk(node, ())
    return lines


def _first_problem(
    error: ValidationError, lines: dict[tuple[str | int, ...], int], path: Path
) -> str:
    first = error.errors()[0]
    keys = tuple(first["loc"])
    line = next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), 1)
    name = ".".join(str(key) for key in keys)
    if first["type"] == "extra_forbidden":
        return f"{path}:{line}: unknown key {name!r}"
    if first["type"] == "missing":
        return f"{path}:{line}: the key {name!r} is missing"
    said = first["msg"].removeprefix("Value error, ")
    return f"{path}:{line}: {f'{name}: ' if name else ''}{said}, got {first['input']!r:.60}"
