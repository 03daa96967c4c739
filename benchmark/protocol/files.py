"""Protocols and suites from YAML; an unknown key is an error with file and line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from benchmark.documents import Document, read_document
from benchmark.errors import ProtocolError
from benchmark.protocol.settings import Protocol, Suite, TextProtocol, VisionProtocol
from benchmark.protocol.utility import UtilityProtocol

PROTOCOLS = Path(__file__).resolve().parent.parent.parent / "protocols"
_TRACKS: dict[str, type[Protocol]] = {"vision": VisionProtocol, "text": TextProtocol}

_APART = {"grids", "suites", "utility"}  # folders whose files are no protocols of attacks

_Settings = TypeVar("_Settings", Protocol, Suite, UtilityProtocol)


def protocol_files(folder: Path = PROTOCOLS) -> dict[str, Path]:
    """Return every protocol's file by the protocol's name."""
    paths = (path for path in folder.rglob("*.yaml") if path.parent.name not in _APART)
    return _files(paths)


def suite_files(folder: Path = PROTOCOLS) -> dict[str, Path]:
    """Return every suite's file by the suite's name."""
    return _files(folder.rglob("suites/*.yaml"))


def utility_files(folder: Path = PROTOCOLS) -> dict[str, Path]:
    """Return every utility protocol's file by the protocol's name."""
    return _files(folder.rglob("utility/*.yaml"))


def load_utility(name_or_path: str) -> UtilityProtocol:
    """Load a utility protocol by its name, or by the path of a YAML file; raises as the others."""
    return _load(_find(name_or_path, utility_files(), "utility protocol"), UtilityProtocol)


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


@cache
def read_suites() -> dict[str, Suite]:
    """Return what every suite's file says, by name; no protocol is loaded."""
    return {name: _load(path, Suite) for name, path in suite_files().items()}


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


def _files(paths: Iterable[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(paths):
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
    document = read_document(path)
    return document.fit(_of_track(document) if settings is Protocol else settings)


def _of_track(document: Document) -> type[Protocol]:
    track = document.content.get("track", "vision")
    if not isinstance(track, str) or track not in _TRACKS:
        said = f"track: wanted {' or '.join(_TRACKS)}, got {track!r}"
        raise document.wrong(("track",), said)
    return _TRACKS[track]
