"""YAML files read into settings; whatever is wrong with one is told in a line with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from benchmark.errors import ProtocolError

_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, ten times as quick, where PyYAML was built with it."""
_LARGEST, _DEEPEST, _MOST = 2**20, 50, 10_000  # bytes, levels, values of one file
Keys = tuple[str | int, ...]
_Settings = TypeVar("_Settings")


@dataclass(frozen=True)
class Document:
    """What a YAML file holds.

    Attributes:
        path: the file.
        content: by key.
        lines: of every key, by the keys that lead to it.
    """

    path: Path
    content: dict[str, Any]
    lines: Mapping[Keys, int] = field(repr=False)

    def fit(self, settings: type[_Settings]) -> _Settings:
        """Return the content as settings: a pydantic model, or a dataclass, with a `name`.

        What validates it is told the file's folder, as `beside`: relative paths stand there.

        Raises:
            ProtocolError: it does not fit, or the name is not the file's own.
        """
        try:
            fitted = TypeAdapter(settings).validate_python(
                self.content, context={"beside": self.path.parent}
            )
        except ValidationError as error:
            raise self._first(error) from error
        except ProtocolError as error:
            raise ProtocolError(f"{self.path}: {error}") from error
        if (name := self.content["name"]) != self.path.stem:
            raise self.wrong(("name",), f"name {name!r} is not the file's own")
        return fitted

    def wrong(self, keys: Keys, said: str) -> ProtocolError:
        """Return the error that says what is wrong at a key, or at the nearest one above it."""
        known = (keys[:n] for n in range(len(keys), 0, -1) if keys[:n] in self.lines)
        return ProtocolError(f"{self.path}:{self.lines.get(next(known, ()), 1)}: {said}")

    def _first(self, error: ValidationError) -> ProtocolError:
        first = error.errors()[0]
        keys = tuple(first["loc"])
        name = ".".join(str(key) for key in keys)
        if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
            return self.wrong(keys, f"unknown key {name!r}")
        if first["type"] in ("missing", "missing_argument"):
            return self.wrong(keys, f"the key {name!r} is missing")
        said = first["msg"].removeprefix("Value error, ")
        where = f"{name}: " if name else ""
        return self.wrong(keys, f"{where}{said}, got {first['input']!r:.60}")


def read_document(path: Path) -> Document:
    """Read a YAML file, a mapping of keys.

    Raises:
        ProtocolError: it cannot be read, is not YAML, no mapping, has a key twice, or holds more
            than any of ours would.
    """
    try:
        text = _text(path)
        loader = _Loader(text)
        node = loader.get_single_node()
        lines = _lines(node, path)
        content = None if node is None else loader.construct_document(node)
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
    return Document(path, content, lines)


def _text(path: Path) -> str:
    """Return what a regular file of a bounded size and depth says; libyaml itself has no bound."""
    if path.exists() and not path.is_file():
        raise ProtocolError(f"{path}: wanted a regular file")
    if (size := path.stat().st_size) > _LARGEST:
        raise ProtocolError(f"{path}: {size} bytes; wanted {_LARGEST} at most")
    text, depth = path.read_text(encoding="utf-8"), 0
    for event in yaml.parse(text, Loader=_Loader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST and event.start_mark:
            line = event.start_mark.line + 1
            raise ProtocolError(f"{path}:{line}: nested deeper than {_DEEPEST} levels")
    return text


def _lines(node: yaml.Node | None, path: Path) -> dict[Keys, int]:
    """Return the line of every key of a document, by the keys that lead to it."""
    lines: dict[Keys, int] = {}

    def walk(node: yaml.Node, keys: Keys) -> None:
        if len(lines) > _MOST:
            raise ProtocolError(f"{path}: more than {_MOST} values, its aliases written out")
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
