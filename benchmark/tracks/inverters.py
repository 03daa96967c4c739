"""Where the inverters lie that an attacker trained on updates of public data."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path

import torch

from benchmark.errors import DataUnavailable
from benchmark.protocol import VisionProtocol
from benchmark.registry import Submission
from benchmark.toolbox.inverter import Inverter, InverterShape
from benchmark.versions import TOOLBOX
from benchmark.victims.pretrained import cache_folder, keep


@dataclass(frozen=True)
class InverterStage:
    """All that decides the weights of an inverter: of one protocol, defense and victim.

    Attributes:
        protocol: it grants an inverter, and says how it is trained.
        defense: through which its updates come.
        seed: of the victim.
    """

    protocol: VisionProtocol
    defense: Submission
    seed: int

    @cached_property
    def digest(self) -> str:
        """Identify the stage in 16 hexadecimal digits."""
        stated = {
            "protocol": self.protocol.digest,
            "defense": [self.defense.label, self.defense.version],
            "seed": self.seed,
            "training": TOOLBOX["inverter"],
        }
        return hashlib.sha256(json.dumps(stated, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def file(self) -> Path:
        """Where the weights lie once they are made."""
        name = f"{self.protocol.name}-{self.defense.manifest.name}-{self.digest}.safetensors"
        return cache_folder() / "inverters" / name

    def trained(self, device: torch.device, command: str) -> Inverter:
        """Return the trained inverter, frozen: the same object as long as it is the last one.

        Args:
            device: where it is to lie.
            command: what would train it.

        Raises:
            DataUnavailable: it has not been trained on this machine.
        """
        if not self.file.is_file():
            name = f"the inverter of {self.protocol.name} x {self.defense.label} x seed {self.seed}"
            raise DataUnavailable(name, [str(self.file)], command)
        return _read(self.file, device)

    def save(self, inverter: Inverter) -> None:
        """Write an inverter; a reader, or a kill, finds the whole file or none.

        Raises:
            BenchmarkError: the cache cannot be written.
        """
        keep(self.file, _packed(inverter))


def save_inverter(inverter: Inverter, path: Path) -> None:
    """Write an inverter: its shape and its tensors."""
    path.write_bytes(_packed(inverter))


def _packed(inverter: Inverter) -> bytes:
    from safetensors.torch import save

    shape = inverter.shape
    said = {**asdict(shape), "entries": list(shape.entries.items())}  # in their order
    tensors = {name: each.cpu().contiguous() for name, each in inverter.state_dict().items()}
    return save(tensors, metadata={"inverter": json.dumps(said)})


def load_inverter(path: Path) -> Inverter:
    """Read an inverter back, bit by bit the same, on the CPU and frozen."""
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        said = json.loads(file.metadata()["inverter"])
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    shape = InverterShape(
        dict(said["entries"]), tuple(said["images"]), said["bins"], said["hidden"]
    )
    inverter = Inverter(shape)
    inverter.load_state_dict(tensors)
    return inverter.requires_grad_(False)


@lru_cache(maxsize=1)
def _read(file: Path, device: torch.device) -> Inverter:
    return load_inverter(file).to(device)
