"""Finds submissions: the repository's own folder, entry points, and folders a user names.

A submission is a folder with a `submission.yaml`. Finding one imports nothing of it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import re
import sys
import types
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from benchmark.errors import PluginError, unknown
from benchmark.identity import OWN, ROOT, contents, fingerprint, inherited, sources
from benchmark.manifest import MANIFEST, Kind, Manifest, Scalar, read_manifest, read_own_manifest

ENTRY_POINTS = "gradleak.submissions"
"""The group by which an installed package names the package that holds its submissions."""
_EXPONENT = re.compile(r"[-+]?\d+e[-+]?\d+")  # to YAML 1.1 a word
_EXACTLY = ConfigDict(strict=True, allow_inf_nan=False)
LABEL = re.compile(r"(?:[A-Za-z0-9_][A-Za-z0-9_-]*/)?[a-z0-9][A-Za-z0-9_,=.+-]*")
"""A name, after that of a package if it has one, and arguments."""
_LONGEST_LABEL = 150  # it is a file's name, and stands on pages
TUNED: tuple[str, Scalar] = ("rate", "tuned")
"""The argument that stands for the rate that `gradleak tune` chose in a protocol."""


@dataclass(frozen=True)
class Submission:
    """One method with its arguments: a row or a column of the board."""

    manifest: Manifest
    folder: Path
    arguments: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        """Refuse a label that is no name of a file, or no word on a page.

        Raises:
            PluginError: which.
        """
        if not LABEL.fullmatch(self.label) or len(self.label) > _LONGEST_LABEL:
            said = f"{self.manifest.kind} {self.label!r:.200}"
            wanted = f"letters, digits and _,=.+- and {_LONGEST_LABEL} of them at most"
            raise PluginError(f"{said}: wanted {wanted}")

    @property
    def label(self) -> str:
        """The name, and each argument that is not a default: `name,key=value`."""
        return ",".join([self.manifest.name, *(f"{k}={v}" for k, v in self.arguments)])

    @property
    def outside(self) -> bool:
        """Whether the code comes from outside the repository."""
        return not self.folder.is_relative_to(OWN)

    @cached_property
    def version(self) -> str:
        """Its own version, and those above 1 of what it imports: `2+matching.3`."""
        found = inherited(self.files)
        for folder in {path.parent for path in self.files} - {self.folder}:
            if (
                folder.parent.parent == OWN
                and (other := read_manifest(folder / MANIFEST)).version > 1
            ):
                found[other.name] = other.version
        borrowed = (f"{name}.{version}" for name, version in sorted(found.items()))
        return "+".join([str(self.manifest.version), *borrowed])

    @cached_property
    def fingerprint(self) -> str:
        """Digest of what its own source and what it imports of toolbox and submissions say."""
        manifest = self.manifest
        base = self.folder if self.outside else ROOT
        said = (manifest.entry, manifest.control, manifest.grants, manifest.server)
        more = contents(self.folder, but=MANIFEST) if self.outside else ()
        return fingerprint(self.files, base, *map(str, said), *more)

    @cached_property
    def files(self) -> list[Path]:
        """Its own source, and that of toolbox and submissions which it imports."""
        return sources(self.folder)

    def build(self) -> Any:  # noqa: ANN401  (an Attack or a Defense, by its kind)
        """Import the code and make the instance.

        Raises:
            PluginError: the code cannot be imported, is not what it says, or an argument is
                unknown, of another type or out of its range.
        """
        if TUNED in self.arguments:
            raise PluginError(f"{self.label}: a rate is tuned in a protocol: wanted gradleak run")
        from benchmark.contract import Attack, Defense, MaliciousAttack  # torch, not to list them

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
            self._check_arguments(made)
            instance = made(**dict(self.arguments))
        except PluginError:
            raise
        except (Exception, SystemExit) as error:
            raise PluginError(f"{where}: {class_name}: {error}") from error
        return instance

    def _check_arguments(self, made: type) -> None:
        """Hold each argument against the type, and the range, that its field declares."""
        fields = get_type_hints(made, include_extras=True)
        known = [field.name for field in dataclasses.fields(made) if field.init]
        for name, value in self.arguments:
            if name not in known:
                where = f"{self.folder}: " if self.outside else ""
                said = f"{self.manifest.kind} {self.label}: {unknown('argument', name, known)}"
                raise PluginError(f"{where}{said}")
            try:
                TypeAdapter(fields[name], config=_EXACTLY).validate_python(value)
            except ValidationError as error:
                _, _, wanted = error.errors()[0]["msg"].partition(" ")  # after "Input", "String"
                said = f"{name}={value} {wanted}"
                raise PluginError(f"{self.manifest.kind} {self.label}: {said}") from error

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
        """Find submissions; nothing is imported.

        What is outside the repository and broken is left out and told in `broken`.

        Args:
            folders: beside the repository's own and the installed entry points.

        Raises:
            PluginError: a folder named without submissions, or a bad manifest of the repository's.
        """
        self._found: dict[tuple[Kind, str], tuple[Manifest, Path]] = {}
        self.broken: dict[Path, str] = {}
        """By folder, the one line on what is wrong with a submission from outside."""
        self._search(OWN)
        for package, folder in _installed():
            if folder is None:
                self.broken[Path(package)] = f"{package}: its submissions cannot be found"
            else:
                self._search(folder, package)
        for path in folders:
            if not self._search(path.resolve()):
                raise PluginError(f"{path.resolve()}: no {MANIFEST} in it or below")
        known = self.names("defense")
        for (kind, name), (manifest, folder) in list(self._found.items()):
            if strange := sorted(set(manifest.adaptive_to) - set(known)):
                said = f"adaptive_to: no defense {strange[0]!r}; known: {', '.join(known)}"
                del self._found[kind, name]
                self._blame(folder, f"{folder / MANIFEST}: {said}")

    def _search(self, folder: Path, package: str | None = None) -> bool:
        """Add what a folder holds; tell whether it holds anything, templates included."""
        paths = sorted(folder.rglob(MANIFEST))
        for path in paths:
            if not path.relative_to(folder).as_posix().startswith("_"):
                try:
                    self._add(path, package)
                except PluginError as error:
                    self._blame(path.parent, str(error))
        return bool(paths)

    def _blame(self, folder: Path, said: str) -> None:
        if folder.is_relative_to(OWN):
            raise PluginError(said)
        self.broken[folder] = said

    def _add(self, path: Path, package: str | None) -> None:
        manifest = read_own_manifest(path) if path.is_relative_to(OWN) else read_manifest(path)
        if manifest.control and not path.is_relative_to(OWN):
            raise PluginError(f"{path}: control: a yardstick is the repository's own")
        if package is not None:
            manifest = manifest.model_copy(update={"name": f"{package}/{manifest.name}"})
        key = (manifest.kind, manifest.name)
        if key in self._found and self._found[key][1] != path.parent:
            raise PluginError(
                f"{path}: the {manifest.kind} {manifest.name} is taken by {self._found[key][1]}"
            )
        for variant in manifest.variants:
            Submission(manifest, path.parent, tuple(variant.items()))  # refuses what no label is
        self._found[key] = (manifest, path.parent)

    def names(self, kind: Kind) -> list[str]:
        """Return the names of one kind, sorted."""
        return sorted(name for found_kind, name in self._found if found_kind == kind)

    @property
    def own(self) -> set[str]:
        """The names of the repository's attacks."""
        found = self._found.items()
        return {
            name for (kind, name), (_, at) in found if kind == "attack" and at.parent.parent == OWN
        }

    @property
    def controls(self) -> set[str]:
        """The names of the attacks that are yardsticks."""
        return {name for (_, name), (manifest, _) in self._found.items() if manifest.control}

    def adaptive_to(self, defense: str) -> list[str]:
        """Return the names of the attacks that know how to meet a defense, by its name, sorted."""
        found = self._found.values()
        return sorted(manifest.name for manifest, _ in found if defense in manifest.adaptive_to)

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
            for folder, said in self.broken.items():
                if folder.name == name:
                    raise PluginError(said)
            raise PluginError(unknown(kind, name, self.names(kind)))
        manifest, folder = self._found[kind, name]
        if not given:
            return [Submission(manifest, folder, tuple(v.items())) for v in manifest.variants]
        if given == ["defaults"]:
            return [Submission(manifest, folder)]
        if any("=" not in argument for argument in given):
            raise PluginError(f"{kind} {label!r}: wanted {name},key=value or {name},defaults")
        pairs = (argument.split("=", 1) for argument in given)
        arguments = tuple((key, _scalar(value)) for key, value in pairs)
        return [Submission(manifest, folder, arguments)]


def _scalar(text: str) -> Scalar:
    """Read an argument as YAML, and 1e-05 as the number that Python writes so."""
    return float(text) if _EXPONENT.fullmatch(text) else yaml.safe_load(text)


def exactly(label: str) -> str:
    """Return what selects the one submission of a label, and no variant beside it."""
    return label if "," in label else f"{label},defaults"


def _installed() -> list[tuple[str, Path | None]]:
    """Return the installed packages that name submissions, and where these lie; imports nothing."""
    found = []
    for point in entry_points(group=ENTRY_POINTS):
        top, *below = point.module.split(".")
        spec = find_spec(top)
        places = (Path(place, *below) for place in (spec and spec.submodule_search_locations) or [])
        found.append((point.name, next((p.resolve() for p in places if p.is_dir()), None)))
    return found
