"""Where protocols and suites lie. Imports nothing heavy, so that listing them is instant."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from benchmark.errors import ProtocolError

PROTOCOLS = Path(__file__).resolve().parent.parent.parent / "protocols"
_APART = {"grids", "suites", "utility"}  # folders whose files are no protocols of attacks


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


def is_file(name_or_path: str) -> bool:
    """Tell whether a protocol is named by its file."""
    return name_or_path.endswith((".yaml", ".yml"))


def is_outside(name_or_path: str) -> bool:
    """Tell whether a protocol is a file that is none of the repository's."""
    path = Path(name_or_path).resolve()
    return is_file(name_or_path) and not path.is_relative_to(PROTOCOLS)


def _files(paths: Iterable[Path]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(paths):
        if path.stem in files:
            raise ProtocolError(f"{path}: the name {path.stem} is taken by {files[path.stem]}")
        files[path.stem] = path
    return files
