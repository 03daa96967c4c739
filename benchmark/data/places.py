"""Where data may lie on this machine, and whether it is what the catalogue says."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from benchmark.data.catalogue import Entry
from benchmark.errors import BenchmarkError, DataUnavailable, first_line

VARIABLE = "GRADLEAK_DATA"
"""The environment variable that names the mirror's folder."""


def mirror_folder(mirror: Path | None) -> Path | None:
    """Return the mirror's folder: the argument, else the environment's, else None."""
    if mirror is None and (named := os.environ.get(VARIABLE)):
        return Path(named)
    return mirror


def mirror_file(name: str, path: str, mirror: Path | None) -> Path:
    """Return a file of the mirror; DataUnavailable, with the path wanted, where it is not there."""
    return mirror_place(name, mirror, path)


def mirror_place(name: str, mirror: Path | None, *paths: str) -> Path:
    """Return the first of these files and folders that the mirror has.

    Raises:
        DataUnavailable: with every path tried; the command names the first.
    """
    if mirror is None:
        tried = [f"{VARIABLE} (not set)"]
    else:
        for path in paths:
            if (mirror / path).is_file() or (mirror / path).is_dir():
                return mirror / path
            if (mirror / path).exists():
                raise BenchmarkError(f"{mirror / path}: wanted a regular file")
        tried = [str(mirror / path) for path in paths]
    raise DataUnavailable(name, tried, f"{VARIABLE}=DIR, with DIR/{paths[0]}")


@contextmanager
def reading(found: Entry) -> Iterator[None]:
    """Turn what a damaged copy makes a library raise, of whatever kind, into one line."""
    try:
        yield
    except BenchmarkError:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {first_line(error)}"
        raise BenchmarkError(f"{found.name}: its copy cannot be read: {said}") from error


def bundled_file(found: Entry, package: str, file: str) -> Path:
    """Return a file of a package: the packages' own loaders would download one that is missing."""
    spec = find_spec(package)
    folder = "" if spec is None or spec.origin is None else spec.origin
    path = Path(folder).parent / file
    if not path.is_file():
        command = "pip install --force-reinstall scikit-image scikit-learn timm"
        raise DataUnavailable(found.name, [f"{package}/{file}"], command)
    return path


def check_digest(found: Entry, key: str, digest: str, origin: str) -> None:
    """Raise BenchmarkError where content is not the catalogue's; an unlisted key passes."""
    wanted = found.digest.get(key, digest)
    if digest != wanted:
        raise BenchmarkError(
            f"{found.name} {key} from {origin}: content has sha256 {digest}, "
            f"the catalogue wants {wanted}"
        )
