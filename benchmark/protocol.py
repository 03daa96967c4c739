"""Protocols and suites: YAML to frozen settings; an unknown key is an error with file and line."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property, reduce
from operator import getitem
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmark.contract import Budget, Grant, ThreatModel
from benchmark.data.catalogue import entry
from benchmark.errors import ProtocolError
from benchmark.metrics import IMAGE_METRICS, metric
from benchmark.victims import VictimSettings

PROTOCOLS = Path(__file__).resolve().parent.parent / "protocols"
_NAME = r"^[a-z0-9][a-z0-9_]*$"
_YOUNGER: dict[str, Any] = {
    "public_network": None,
    "budget.gradient_evaluations": 0,
    "federation.distinct_labels": False,
}
"""Keys younger than the first records, with their defaults: a digest is as it was without them."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DataSettings(_Frozen):
    """Which images are attacked."""

    name: str
    """A data set of the catalogue."""
    split: Literal["test"] = "test"
    """Trials come from the private split alone; the public one gives the statistics."""
    size: int = Field(ge=4)
    """Side in pixels that the victim sees."""


class FederationSettings(_Frozen):
    """How a client makes its update."""

    algorithm: Literal["fedsgd"] = "fedsgd"
    batch_size: int = Field(default=1, ge=1)
    distinct_labels: bool = False
    """Whether no label may stand twice in a batch."""
    loss: Literal["cross_entropy"] = "cross_entropy"


class ThreatSettings(_Frozen):
    """Who the server is, and what it is granted."""

    server: Literal["honest_but_curious"] = "honest_but_curious"
    grants: tuple[Grant, ...] = (Grant.BATCH_SIZE, Grant.DATA_STATISTICS)

    def model(self) -> ThreatModel:
        """Return the contract's threat model."""
        return ThreatModel(self.server, frozenset(self.grants))


class BudgetSettings(_Frozen):
    """What an attack may spend on one trial."""

    seconds: float = Field(gt=0, allow_inf_nan=False)
    memory_mib: int = Field(gt=0)
    """Above the process's own memory; enforced where attacks run isolated."""
    gradient_evaluations: int = Field(default=0, ge=0)
    """Gradients of the victim on a trial's whole batch; 0 leaves closed forms only."""

    def budget(self) -> Budget:
        """Return the contract's budget."""
        return Budget(self.seconds, self.memory_mib * 2**20, self.gradient_evaluations)


class Protocol(_Frozen):
    """What makes two numbers comparable."""

    name: str = Field(pattern=_NAME)
    version: int = Field(ge=1)
    title: str
    description: str
    track: Literal["vision"] = "vision"
    data: DataSettings
    victim: VictimSettings
    federation: FederationSettings = FederationSettings()
    threat: ThreatSettings = ThreatSettings()
    public_network: VictimSettings | None = None
    """The network granted as `public_network`, an image prior; stands with that grant alone."""
    trials: int = Field(ge=2)
    """Trials under each seed; a control needs another trial's update."""
    seeds: tuple[int, ...] = Field(min_length=1)
    budget: BudgetSettings
    metrics: tuple[str, ...] = IMAGE_METRICS
    primary: str = "psnr"

    @model_validator(mode="after")
    def _names_exist(self) -> Protocol:
        entry(self.data.name)
        for name in self.metrics:
            metric(name)
        if self.primary not in self.metrics:
            raise ValueError(f"the primary metric {self.primary} is not among the metrics")
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed stands twice")
        granted = Grant.PUBLIC_NETWORK in self.threat.model().grants
        if granted and self.public_network is None:
            raise ProtocolError("public_network is granted; wanted the key public_network too")
        if self.public_network is not None and not granted:
            raise ProtocolError("public_network is described; wanted it among threat.grants too")
        return self

    @cached_property
    def digest(self) -> str:
        """Identify all that decides a number: everything but the title and the description."""
        content = self.model_dump(mode="json", exclude={"title", "description"})
        for path, default in _YOUNGER.items():
            *outer, key = path.split(".")
            part = reduce(getitem, outer, content)
            if part[key] == default:
                del part[key]
        text = json.dumps(content, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def frozen(self) -> dict[str, Any]:
        """Return the protocol as plain data, with its digest, to keep beside its records."""
        return {**self.model_dump(mode="json"), "digest": self.digest}


class Suite(_Frozen):
    """The protocols of one board."""

    name: str = Field(pattern=_NAME)
    title: str
    protocols: tuple[str, ...] = Field(min_length=1)
    attacks: tuple[str, ...] = ()
    """The only attacks it runs, as `--attack` names them; empty is all that are registered."""
    defenses: tuple[str, ...] = ()
    """Likewise."""


_Settings = TypeVar("_Settings", Protocol, Suite)


def protocol_files(folder: Path = PROTOCOLS) -> dict[str, Path]:
    """Return every protocol's file by the protocol's name."""
    return _files(folder, suites=False)


def suite_files(folder: Path = PROTOCOLS) -> dict[str, Path]:
    """Return every suite's file by the suite's name."""
    return _files(folder, suites=True)


def load_protocol(name_or_path: str) -> Protocol:
    """Load a protocol by its name, or by the path of a YAML file.

    Raises:
        ProtocolError: no such protocol, or a file that does not fit the schema.
    """
    path = _find(name_or_path, protocol_files(), "protocol")
    return _load(path, Protocol)


def load_suite(name_or_path: str) -> list[Protocol]:
    """Load the protocols of a suite, or the one protocol of that name or path.

    Raises:
        ProtocolError: no such suite or protocol, or a file that does not fit the schema.
    """
    suites, protocols = suite_files(), protocol_files()
    if name_or_path in suites:
        suite = _load(suites[name_or_path], Suite)
        return [load_protocol(name) for name in suite.protocols]
    path = _find(name_or_path, {**suites, **protocols}, "suite or protocol")
    return [_load(path, Protocol)]


def chosen_by(name_or_path: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the attacks and the defenses that a suite keeps to; empty is no choice.

    Raises:
        ProtocolError: a suite that does not fit the schema.
    """
    path = suite_files().get(name_or_path)
    if path is None:
        return (), ()
    suite = _load(path, Suite)
    return suite.attacks, suite.defenses


def _files(folder: Path, *, suites: bool) -> dict[str, Path]:
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*.yaml")):
        if (path.parent.name == "suites") != suites:
            continue
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
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
        lines = _lines(node, path)
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
    try:
        loaded = settings.model_validate(content)
    except ValidationError as error:
        raise ProtocolError(_first_problem(error, lines, path)) from error
    except ProtocolError as error:
        raise ProtocolError(f"{path}: {error}") from error
    if loaded.name != path.stem:
        raise ProtocolError(f"{path}:{lines['name',]}: name {loaded.name!r} is not the file's own")
    return loaded


def _lines(node: yaml.Node | None, path: Path) -> dict[tuple[str | int, ...], int]:
    """Return the line of every key of a document, by the keys that lead to it."""
    lines: dict[tuple[str | int, ...], int] = {}

    def walk(node: yaml.Node, keys: tuple[str | int, ...]) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                here = (*keys, key.value)
                line = key.start_mark.line + 1
                if here in lines:
                    raise ProtocolError(f"{path}:{line}: the key {key.value!r} stands twice")
                lines[here] = line
                walk(value, here)
        elif isinstance(node, yaml.SequenceNode):
            for i, value in enumerate(node.value):
                lines[*keys, i] = value.start_mark.line + 1
                walk(value, (*keys, i))

    if node is not None:
        walk(node, ())
    return lines


def _first_problem(
    error: ValidationError, lines: dict[tuple[str | int, ...], int], path: Path
) -> str:
    first = error.errors()[0]
    keys = tuple(first["loc"])
    line = next((lines[keys[:n]] for n in range(len(keys), 0, -1) if keys[:n] in lines), 1)
    name = ".".join(str(key) for key in keys)
    if first["type"] == "extra_forbidden":
        return f"{path}:{line}: unknown key {name!r}"
    if first["type"] == "missing":
        return f"{path}:{line}: the key {name!r} is missing"
    said = first["msg"].removeprefix("Value error, ")
    return f"{path}:{line}: {f'{name}: ' if name else ''}{said}, got {first['input']!r:.60}"
