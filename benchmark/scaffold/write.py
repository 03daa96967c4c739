"""Writes the folder of a new submission from a template: the manifest, the method, its test."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template

from benchmark.errors import BenchmarkError

_TEMPLATES = Path(__file__).parent / "templates"
_ENDING = ".template"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


def write(name: str, template: str, into: Path) -> list[Path]:
    """Write a template's files into a new folder of that name, and return them.

    Args:
        name: of the submission, in lower case and underscores.
        template: a folder of `templates`.
        into: where the folder is made.

    Raises:
        BenchmarkError: the name is none, or the folder is there already.
    """
    if not _NAME.fullmatch(name):
        raise BenchmarkError(f"{name!r}: wanted a name of lower-case letters, digits and _")
    folder = into / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise BenchmarkError(f"{folder}: is there already; wanted a new name") from None
    except OSError as error:
        raise BenchmarkError(f"{folder}: cannot be made: {error.strerror}") from error
    words = {"name": name, "made": "".join(part.capitalize() for part in name.split("_"))}
    made = []
    for path in sorted([*(_TEMPLATES / template).iterdir(), _TEMPLATES / f"test{_ENDING}"]):
        file = folder / path.name.removesuffix(_ENDING)
        if file.name == "test":
            file = folder / f"test_{name}.py"
        file.write_text(Template(path.read_text("utf-8")).substitute(words), "utf-8")
        made.append(file)
    return sorted(made)
