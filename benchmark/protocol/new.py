"""`gradleak new protocol`: a protocol's file, with every choice told, that runs as it is."""

from __future__ import annotations

import json
import re
from pathlib import Path
from string import Template

from benchmark.errors import ProtocolError
from benchmark.protocol.places import is_file

_TEMPLATES = Path(__file__).parent / "templates"
_NAME = r"[a-z][a-z0-9_]*"


def write(name: str, folder: Path | None = None, text: Path | None = None) -> Path:
    """Write `NAME.yaml` here, on one's own images or text, or on digits; return its path.

    Args:
        name: of the protocol, or the path of its file.
        folder: of images.
        text: a file or a folder of text.

    Raises:
        ProtocolError: no such name, both kinds of data, or a file that is there already.
    """
    path = Path(name if is_file(name) else f"{name}.yaml")
    if not re.fullmatch(_NAME, path.stem):
        raise ProtocolError(f"name {path.stem!r}: wanted a-z, 0-9 and _, a letter first")
    if folder and text:
        raise ProtocolError("--folder and --text together: wanted one of them")
    if text:
        data = f"text: {_seen_from(path, text)}"
    else:
        data = f"folder: {_seen_from(path, folder)}" if folder else "name: digits"
    template = (_TEMPLATES / ("text.yaml" if text else "vision.yaml")).read_text(encoding="utf-8")
    title = path.stem.replace("_", " ").capitalize()
    said = Template(template).substitute(name=path.stem, title=title, data=f"  {data}")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(said)
    except FileExistsError as error:
        raise ProtocolError(f"{path}: there already; wanted another name") from error
    except OSError as error:
        raise ProtocolError(f"{path}: cannot be written: {error.strerror}") from error
    return path


def _seen_from(path: Path, place: Path) -> str:
    """Return a place as YAML, relative to the protocol's folder where it lies beneath that."""
    if not place.exists():
        raise ProtocolError(f"{place}: no such file or folder")
    here, there = path.resolve().parent, place.resolve()
    named = there.relative_to(here) if there.is_relative_to(here) else there
    return json.dumps(str(named), ensure_ascii=False)
