"""Protocols and suites from YAML; an unknown key is an error with file and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from benchmark.documents import Document, read_document
from benchmark.errors import ProtocolError, unknown
from benchmark.protocol.places import is_file, protocol_files, suite_files, utility_files
from benchmark.protocol.settings import Protocol, Suite, TextProtocol, VisionProtocol
from benchmark.protocol.utility import TextUtility, UtilityProtocol, VisionUtility

_TRACKS: dict[str, type[Protocol]] = {"vision": VisionProtocol, "text": TextProtocol}
_UTILITY: dict[str, type[UtilityProtocol]] = {"vision": VisionUtility, "text": TextUtility}

_Settings = TypeVar("_Settings", Protocol, Suite, UtilityProtocol)


def load_utility(name_or_path: str) -> UtilityProtocol:
    """Load a utility protocol by its name, or by the path of a YAML file; raises as the others."""
    return _load(_find(name_or_path, utility_files(), "utility protocol"), UtilityProtocol)


def load_protocol(name_or_path: str, folder: Path | None = None) -> Protocol:
    """Load a protocol by its name, or by the path of a YAML file.

    Args:
        name_or_path: of it.
        folder: of more protocols, beside the repository's.

    Raises:
        ProtocolError: no such protocol, or a file that does not fit the schema.
    """
    path = _find(name_or_path, _more(protocol_files(), folder, protocol_files), "protocol")
    return _load(path, Protocol)


@dataclass(frozen=True)
class SuitePart:
    """Protocols that run by the same choices; an empty choice of attacks or defenses is none."""

    protocols: tuple[Protocol, ...]
    attacks: tuple[str, ...] = ()
    defenses: tuple[str, ...] = ()
    trials: int | None = None
    leave_out: tuple[str, ...] = ()


def load_suite(name_or_path: str, folder: Path | None = None) -> list[SuitePart]:
    """Load a suite, part by part, or the one protocol of that name or path.

    Args:
        name_or_path: of it.
        folder: of more protocols and suites, beside the repository's.

    Raises:
        ProtocolError: no such suite or protocol, a suite within itself, or a file that does not
            fit the schema.
    """
    return list(_parts(name_or_path, (), folder))


@cache
def read_suites() -> dict[str, Suite]:
    """Return what every suite's file says, by name; no protocol is loaded."""
    return {name: _load(path, Suite) for name, path in suite_files().items()}


def protocols_of(suite: str) -> list[str]:
    """Return the names of a suite's protocols, those of its suites too."""
    return [protocol.name for part in load_suite(suite) for protocol in part.protocols]


def _parts(name: str, outer: tuple[str, ...], folder: Path | None) -> Iterator[SuitePart]:
    suites = _more(suite_files(), folder, suite_files)
    protocols = _more(protocol_files(), folder, protocol_files)
    if name not in suites:
        path = _find(name, {**suites, **protocols}, "suite or protocol")
        yield SuitePart((_load(path, Protocol),))
        return
    if name in outer:
        raise ProtocolError(f"{suites[name]}: the suite {name} is within itself")
    suite = _load(suites[name], Suite)
    if suite.protocols:
        own = tuple(load_protocol(one, folder) for one in suite.protocols)
        yield SuitePart(own, suite.attacks, suite.defenses, suite.trials, suite.leave_out)
    for inner in suite.suites:
        if inner not in suites:
            raise ProtocolError(f"{suites[name]}: {unknown('suite', inner, suites)}")
        yield from _parts(inner, (*outer, name), folder)


def _find(name_or_path: str, files: dict[str, Path], kind: str) -> Path:
    if name_or_path in files:
        return files[name_or_path]
    if is_file(name_or_path):
        return Path(name_or_path)
    raise ProtocolError(unknown(kind, name_or_path, files))


def _more(
    files: dict[str, Path], folder: Path | None, find: Callable[[Path], dict[str, Path]]
) -> dict[str, Path]:
    """Return the files with those of another folder, of which none has a name that is taken."""
    if folder is None:
        return files
    if not folder.is_dir():
        raise ProtocolError(f"{folder}: no such folder; --protocols wants one of YAML files")
    own = find(folder)
    if taken := sorted(files.keys() & own.keys()):
        raise ProtocolError(f"{own[taken[0]]}: the name {taken[0]} is taken by {files[taken[0]]}")
    return files | own


def _load(path: Path, settings: type[_Settings]) -> _Settings:
    document = read_document(path)
    if settings is Protocol:
        return document.fit(_of_track(document, _TRACKS))
    if settings is UtilityProtocol:
        return document.fit(_of_track(document, _UTILITY))
    return document.fit(settings)


def _of_track(document: Document, classes: Mapping[str, type[_Settings]]) -> type[_Settings]:
    track = document.content.get("track", "vision")
    if not isinstance(track, str) or track not in classes:
        said = f"track: wanted {' or '.join(classes)}, got {track!r}"
        raise document.wrong(("track",), said)
    return classes[track]
