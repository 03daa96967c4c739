"""What a number stands on: a version, which people raise, and a fingerprint, which warns.

The version decides whether a record is due. The fingerprint is a digest of what the source says,
without comments, docstrings and formatting; where it moved under the same version nobody knows yet
whether an answer did, and `gradleak verify` finds out.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from benchmark.versions import HARNESS, TOOLBOX

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / "submissions"
HARNESS_PARTS = (
    *("contract", "data", "federation", "metrics", "tracks", "victims"),
    *("seeds.py", "cell.py"),
)
"""The parts of `benchmark/` that decide a score, whatever the attack and the defense."""
_OF_SUBMISSIONS = ("benchmark.toolbox.", "submissions.")


def harness_version() -> str:
    """Return the harness's version, as records write it."""
    return str(HARNESS)


@cache
def harness_fingerprint(root: Path = ROOT) -> str:
    """Return the fingerprint of the harness of a checkout."""
    places = [root / "benchmark" / part for part in HARNESS_PARTS]
    files = [file for place in places for file in ([place] if place.is_file() else _python(place))]
    return fingerprint(files, root)


def inherited(files: Iterable[Path], root: Path = ROOT) -> dict[str, int]:
    """Return the versions, other than 1, of the toolbox packages that some files lie in."""
    toolbox = root / "benchmark" / "toolbox"
    within = [file.relative_to(toolbox).parts[0] for file in files if toolbox in file.parents]
    packages = {part.removesuffix(".py") for part in within} & TOOLBOX.keys()
    return {name: TOOLBOX[name] for name in sorted(packages) if TOOLBOX[name] != 1}


def sources(folder: Path, root: Path = ROOT) -> list[Path]:
    """Return a submission's own files and, from file to file, the toolbox and submissions used."""
    due, seen = _python(folder), set[Path]()
    while due:
        path = due.pop()
        if path not in seen:
            seen.add(path)
            due += _imported(path, root, path.stat().st_mtime_ns)
    return sorted(seen, key=lambda path: path.as_posix())


def fingerprint(files: Iterable[Path], base: Path, *said: object) -> str:
    """Return a digest of what files say, and of further facts, in 16 hexadecimal digits.

    Args:
        files: in an order that does not depend on the machine.
        base: names are relative to it, those of files outside it to the repository.
        said: facts that count as source.
    """
    digest = hashlib.sha256(repr(said).encode())
    for path in files:
        name = path.relative_to(base if path.is_relative_to(base) else ROOT)
        digest.update(f"\0{name.as_posix()}\0{_meaning(path, path.stat().st_mtime_ns)}".encode())
    return digest.hexdigest()[:16]


def contents(folder: Path, *, but: str) -> list[str]:
    """Return the name and digest of every file of a folder that is no Python, but of one name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != but)
    return [
        f"{path.relative_to(folder).as_posix()} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        for path in files
        if path.suffix != ".py" and "__pycache__" not in path.parts
    ]


def _python(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if path.is_file())  # and no pipe


@cache
def _meaning(path: Path, _changed: int) -> str:
    """Return a digest of a file's syntax tree; of its bytes where it is no Python."""
    source = path.read_bytes()
    try:
        source = repr(_plain(ast.parse(source))).encode()
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # importing it will say where
    return hashlib.sha256(source).hexdigest()


def _plain(node: object) -> object:
    """Return a tree as nested tuples, less what no interpreter acts on.

    Empty fields are left out too, since newer versions of Python add some.
    """
    if isinstance(node, ast.AST):
        fields = ((name, value) for name, value in ast.iter_fields(node) if value not in (None, []))
        return type(node).__name__, *((name, _plain(value)) for name, value in fields)
    if isinstance(node, list):
        return [_plain(each) for each in node if not _is_text(each)]
    return node


def _is_text(node: object) -> bool:
    """Tell whether a statement is a bare string: a docstring, or words beneath a field."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


@cache
def _imported(path: Path, root: Path, _changed: int) -> tuple[Path, ...]:
    """Return the files of toolbox and submissions that a file imports; read again if it changed."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    places = [root.joinpath(*name.split(".")) for name in _names(tree)]
    files = [file for p in places for file in (p.with_suffix(".py"), p / "__init__.py")]
    return tuple(file for file in files if file.is_file())


def _names(tree: ast.AST) -> Iterator[str]:
    """Return the modules of toolbox and submissions that a tree imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        yield from (name for name in found if name.startswith(_OF_SUBMISSIONS))
