"""What `submission.yaml` says of an attack or a defense."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from benchmark.contract.grants import Grant, Server
from benchmark.errors import PluginError

Scalar = bool | int | float | str | None
Kind = Literal["attack", "defense"]
MANIFEST = "submission.yaml"


class Manifest(BaseModel):
    """What `submission.yaml` says."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^([a-z0-9][a-z0-9_-]*/)?[a-z0-9][a-z0-9_]*$")
    """Of an installed package's, `package/name`; the file says the second part alone."""
    kind: Kind
    entry: str = Field(pattern=r"^[A-Za-z_]\w*:[A-Za-z_]\w*$")
    """`module:Class`, the module a file of the folder."""
    version: int = Field(default=1, ge=1)
    """Raised when its answers change; its records are then due."""
    rounding_decides: bool = False
    """Whether answers hang on the last bit of a float32: the same on the same machine in a stack
    of the same trials, elsewhere others. Seen where trials are run again on another processor."""
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
    adaptive_to: tuple[str, ...] = ()
    """Names of the defenses that an attack knows how to meet."""
    strength: str | None = None
    """A defense's argument at whose zero it does nothing."""
    deviations: str | None = None
    """What differs from the paper and may help or hinder, in one line."""

    @model_validator(mode="after")
    def _grants_are_a_controls(self) -> Manifest:
        if self.grants and not self.control:
            raise ValueError("grants are a control's alone")
        if self.adaptive_to and self.kind != "attack":
            raise ValueError("adaptive_to is an attack's alone")
        if self.strength and self.kind != "defense":
            raise ValueError("strength is a defense's alone")
        return self


@cache
def read_own_manifest(path: Path) -> Manifest:
    """Do as `read_manifest`, once: the repository's own stay as they are while a process runs."""
    return read_manifest(path)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        PluginError: it is no regular file, no YAML, or says what no manifest may.
    """
    if not path.is_file():
        raise PluginError(f"{path}: wanted a regular file")
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
    if "/" in manifest.name:
        raise PluginError(f"{path}: name: wanted no /, which stands after a package's name")
    return manifest
