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
_MOST_PLACES = 10**5
"""Keys and entries of a file; aliases of aliases would make more of them than memory holds."""
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
        ProtocolError: it cannot be read, is not YAML, no mapping, or has a key twice.
    """
    if path.exists() and not path.is_file():  # a pipe is read for ever
        raise ProtocolError(f"{path}: cannot be read: no file")
    try:
        text = path.read_text(encoding="utf-8")
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


def _lines(node: yaml.Node | None, path: Path) -> dict[Keys, int]:
    """Return the line of every key of a document, by the keys that lead to it."""
    lines: dict[Keys, int] = {}

    def enter(keys: Keys, line: int) -> None:
        lines[keys] = line
        if len(lines) > _MOST_PLACES:
            raise ProtocolError(f"{path}:{line}: over {_MOST_PLACES} keys, its aliases written out")

    def walk(node: yaml.Node, keys: Keys) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*keys, key.value)
                line = key.start_mark.line + 1
                if here in lines:
                    raise ProtocolError(f"{path}:{line}: the key {key.value!r} stands twice")
                enter(here, line)
                walk(value, here)
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                enter((*keys, i), value.start_mark.line + 1)
                walk(value, (*keys, i))

    if node is not None:
        walk(node, ())
    return lines
