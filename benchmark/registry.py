"""Finds submissions: the repository's own folder, entry points, and folders a user names.

A submission is a folder with a `submission.yaml`. Finding one imports nothing of it.
"""

from __future__ import annotations

import ast
import dataclasses
import hashlib
import importlib
import importlib.util
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmark.contract import Attack, Defense, Grant, MaliciousAttack, Server
from benchmark.errors import PluginError
from benchmark.records import Scalar

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / "submissions"
Kind = Literal["attack", "defense"]


class Manifest(BaseModel):
    """What `submission.yaml` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")
    kind: Kind
    entry: str = Field(pattern=r"^[A-Za-z_]\w*:[A-Za-z_]\w*$")
    """`module:Class`, the module a file of the folder."""
    title: str
    paper: str | None = None
    """Where the method comes from."""
    control: bool = False
    """A yardstick, set apart on the board."""
    grants: tuple[Grant, ...] = ()
    """Facts that no protocol gives; a control's alone."""
    server: Server = "honest_but_curious"
    """`malicious` where the method also chooses the parameters that are sent."""
    variants: tuple[dict[str, Scalar], ...] = ({},)
    """Arguments to run under; `{}` is the defaults."""
    paper_gradients: int | dict[str, int] | None = None
    """Gradients of the victim that the paper's own experiments spend on one trial, at its settings
    closest to ours; by data set where they differ."""
    deviations: str | None = None
    """What differs from the paper and may help or hinder, in one line."""

    @model_validator(mode="after")
    def _grants_are_a_controls(self) -> Manifest:
        if self.grants and not self.control:
            raise ValueError("grants are a control's alone")
        return self


@dataclass(frozen=True)
class Submission:
    """One method with its arguments: a row or a column of the board."""

    manifest: Manifest
    folder: Path
    arguments: tuple[tuple[str, Scalar], ...] = ()

    @property
    def label(self) -> str:
        """The name, and each argument that is not a default: `name,key=value`."""
        return ",".join([self.manifest.name, *(f"{k}={v}" for k, v in self.arguments)])

    @property
    def outside(self) -> bool:
        """Whether the code comes from outside the repository."""
        return not self.folder.is_relative_to(OWN)

    @cached_property
    def digest(self) -> str:
        """Identify the source: its own files and what they import of toolbox and submissions."""
        manifest = self.manifest
        digest = hashlib.sha256(repr((manifest.entry, manifest.control, manifest.grants)).encode())
        for path in sorted(_sources(self.folder), key=lambda path: path.as_posix()):
            base = ROOT if path.is_relative_to(ROOT) else self.folder
            digest.update(f"\0{path.relative_to(base).as_posix()}\0".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()[:16]

    def build(self) -> Any:  # noqa: ANN401  (an Attack or a Defense, by its kind)
        """Import the code and make the instance.

        Raises:
            PluginError: the code cannot be imported, is not what it says, or refuses arguments.
        """
        module_name, class_name = self.manifest.entry.split(":")
        where = self.folder / f"{module_name}.py"
        module = self._module(module_name, where)
        wanted: type = Attack if self.manifest.kind == "attack" else Defense
        made = getattr(module, class_name, None)
        if not (isinstance(made, type) and issubclass(made, wanted)):
            raise PluginError(f"{where}: wanted a class {class_name} that is a {wanted.__name__}")
        if issubclass(made, MaliciousAttack) != (self.manifest.server == "malicious"):
            raise PluginError(f"{where}: {class_name} and submission.yaml differ on the server")
        if not dataclasses.is_dataclass(made):
            raise PluginError(f"{where}: {class_name} is not a dataclass")
        try:
            return made(**dict(self.arguments))
        except (Exception, SystemExit) as error:
            raise PluginError(f"{where}: {class_name}: {error}") from error

    def _module(self, name: str, where: Path) -> types.ModuleType:
        package = f"submissions.{self.manifest.kind}s.{self.folder.name}"
        if self.outside:
            package = f"outside_{hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]}"
            if package not in sys.modules:
                parent = types.ModuleType(package)
                parent.__path__ = [str(self.folder)]
                sys.modules[package] = parent
        try:
            return importlib.import_module(f"{package}.{name}")
        except (Exception, SystemExit) as error:
            said = str(error).strip().splitlines()
            first = f"{type(error).__name__}: {said[0] if said else ''}"
            raise PluginError(f"{where}: cannot be imported: {first}") from error


class Registry:
    """All submissions found, by kind and label."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        """Find submissions.

        Args:
            folders: beside the repository's own and the installed entry points.

        Raises:
            PluginError: a folder without submissions, a bad manifest, or a name taken twice.
        """
        self._found: dict[tuple[Kind, str], tuple[Manifest, Path]] = {}
        for folder in [OWN, *_entry_point_folders(), *(path.resolve() for path in folders)]:
            manifests = sorted(folder.rglob("submission.yaml"))
            if not manifests:
                raise PluginError(f"{folder}: no submission.yaml in it or below")
            for path in manifests:
                if not path.relative_to(folder).as_posix().startswith("_"):
                    self._add(path)

    def _add(self, path: Path) -> None:
        manifest = _manifest(path)
        key = (manifest.kind, manifest.name)
        if key in self._found and self._found[key][1] != path.parent:
            raise PluginError(
                f"{path}: the {manifest.kind} {manifest.name} is taken by {self._found[key][1]}"
            )
        self._found[key] = (manifest, path.parent)

    def names(self, kind: Kind) -> list[str]:
        """Return the names of one kind, sorted."""
        return sorted(name for found_kind, name in self._found if found_kind == kind)

    def all(self, kind: Kind) -> list[Submission]:
        """Return every variant of every submission of one kind, by name."""
        return [variant for name in self.names(kind) for variant in self.find(kind, name)]

    def select(self, kind: Kind, labels: Iterable[str]) -> list[Submission]:
        """Return what labels select, each once; no labels select all.

        Raises:
            PluginError: as `find`.
        """
        found = [s for label in labels for s in self.find(kind, label)] or self.all(kind)
        return list({submission.label: submission for submission in found}.values())

    def find(self, kind: Kind, label: str) -> list[Submission]:
        """Return what a label selects.

        A name selects all its variants, `name,key=value` that one, `name,defaults` the one without
        arguments.

        Raises:
            PluginError: no such submission, or an argument that is not `key=value`.
        """
        name, *given = label.split(",")
        if (kind, name) not in self._found:
            raise PluginError(f"no {kind} {name!r}; known: {', '.join(self.names(kind))}")
        manifest, folder = self._found[kind, name]
        if not given:
            return [Submission(manifest, folder, tuple(v.items())) for v in manifest.variants]
        if given == ["defaults"]:
            return [Submission(manifest, folder)]
        if any("=" not in argument for argument in given):
            raise PluginError(f"{kind} {label!r}: wanted {name},key=value or {name},defaults")
        pairs = (argument.split("=", 1) for argument in given)
        arguments = tuple((key, yaml.safe_load(value)) for key, value in pairs)
        return [Submission(manifest, folder, arguments)]


def _manifest(path: Path) -> Manifest:
    try:
        manifest = Manifest.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise PluginError(f"{path}: malformed YAML: {str(error).splitlines()[0]}") from error
    except OSError as error:
        raise PluginError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(key) for key in first["loc"])
        raise PluginError(f"{path}: {where}: {first['msg']}") from error
    return manifest


def _entry_point_folders() -> list[Path]:
    folders = []
    for point in entry_points(group="gradleak.submissions"):
        spec = importlib.util.find_spec(point.value)
        for location in (spec.submodule_search_locations or []) if spec else []:
            folders.append(Path(location).resolve())
    return folders


def _sources(folder: Path) -> set[Path]:
    """Return a submission's own files and, from file to file, the toolbox and submissions used."""
    due = list(folder.rglob("*.py"))
    seen: set[Path] = set()
    while due:
        path = due.pop()
        if path not in seen:
            seen.add(path)
            due += _imported(path, path.stat().st_mtime_ns)
    return seen


@cache
def _imported(path: Path, _changed: int) -> tuple[Path, ...]:
    """Return the files of toolbox and submissions that a file imports; read again if it changed."""
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return ()  # importing it will say where
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    ours = [name for name in names if name.startswith(("benchmark.toolbox.", "submissions."))]
    places = [ROOT.joinpath(*name.split(".")) for name in ours]
    files = [file for p in places for file in (p.with_suffix(".py"), p / "__init__.py")]
    return tuple(file for file in files if file.is_file())
