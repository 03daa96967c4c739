"""Networks and observations as safetensors files: what the sandbox's child is given to read.

Tensors are cloned after reading: a file's tensors lie at odd addresses, and vectorised sums may
then differ in the last bit from those of the harness.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from benchmark.contract import (
    Budget,
    DataStatistics,
    ImageBatch,
    Knowledge,
    LocalTraining,
    Observation,
    Update,
    Victim,
)
from benchmark.errors import PluginError
from benchmark.seeds import generator
from benchmark.toolbox.inverter import Inverter
from benchmark.tracks.inverters import load_inverter, save_inverter
from benchmark.victims import ImageSpec, TextSpec, build

_FACTS = ("labels", "truth", "public_text")  # those that are tensors
_SPECS: dict[str, type[ImageSpec | TextSpec]] = {"vision": ImageSpec, "text": TextSpec}
"""By track."""
_STATISTICS = ("mean_image", "mean", "std")
_IMAGES = ("images", "labels")


def save_model(model: nn.Module, path: Path) -> None:
    """Write a victim, its spec and every tensor of its network; or an inverter."""
    if isinstance(model, Inverter):
        save_inverter(model, path)
        return
    if not isinstance(model, Victim):
        raise PluginError(
            f"a {type(model).__name__} cannot cross into the sandbox; wanted a Victim"
        )
    meta = {"track": model.track, "spec": model.spec.model_dump(mode="json")}
    _save(model.network.state_dict(), meta, path)


def load_model(path: Path, device: torch.device) -> Victim:
    """Read a victim back, bit by bit the same."""
    tensors, meta = _load(path)
    kind = _SPECS[meta["track"]]
    blank = build(kind.model_validate({**meta["spec"], "weights": "random"}), generator(0))
    blank.spec = kind.model_validate(meta["spec"])
    blank.network.load_state_dict(tensors)
    return blank.to(device)


def load_network(path: Path, device: torch.device) -> nn.Module:
    """Read a victim or an inverter back."""
    with safe_open(path, framework="pt") as file:
        inverts = "inverter" in file.metadata()
    return load_inverter(path).to(device) if inverts else load_model(path, device)


def save_observation(seen: Observation, path: Path) -> None:
    """Write an observation, less its networks."""
    known = seen.knowledge
    tensors = {f"update/{name}": tensor for name, tensor in seen.update.items()}
    if known.other_update is not None:
        tensors |= {f"other/{name}": tensor for name, tensor in known.other_update.items()}
    if known.data_statistics is not None:
        tensors |= {f"data/{name}": getattr(known.data_statistics, name) for name in _STATISTICS}
    tensors |= {
        f"known/{name}": getattr(known, name) for name in _FACTS if getattr(known, name) is not None
    }
    if known.public_images is not None:
        tensors |= {f"public/{name}": getattr(known.public_images, name) for name in _IMAGES}
    tensors |= {f"key/{name}": key for name, key in (known.client_keys or {}).items()}
    tensors |= {f"initial/{name}": weight for name, weight in (known.initial or {}).items()}
    for place, later in enumerate(seen.later):
        tensors |= {f"later {place}/{name}": tensor for name, tensor in later.items()}
    tensors["generator"] = seen.generator.get_state()
    meta = {
        "order": list(seen.update),
        "other_order": list(known.other_update or ()),
        "batch_size": known.batch_size,
        "pixel_levels": known.pixel_levels,
        "length": known.length,
        "colludes": known.client_keys is not None,
        "defense": dict(known.defense),
        "local": None if known.local is None else asdict(known.local),
        "later": [list(later) for later in seen.later],
        "budget": asdict(seen.budget),
    }
    _save(tensors, meta, path)


def load_observation(
    path: Path,
    model: Victim,
    device: torch.device,
    public_network: nn.Module | None = None,
    trained_inverter: nn.Module | None = None,
) -> Observation:
    """Read an observation back: what `observe` let through on the other side, and no more."""
    tensors, meta = _load(path)

    def part(prefix: str) -> dict[str, Tensor]:
        return {
            name.removeprefix(prefix): tensor.to(device)
            for name, tensor in tensors.items()
            if name.startswith(prefix)
        }

    update, other, data, facts = (part(p) for p in ("update/", "other/", "data/", "known/"))
    public = part("public/")
    knowledge = Knowledge(
        batch_size=meta["batch_size"],
        pixel_levels=meta["pixel_levels"],
        length=meta["length"],
        **{name: facts.get(name) for name in _FACTS},
        data_statistics=DataStatistics(**data) if data else None,
        public_images=ImageBatch(**public) if public else None,
        public_network=public_network,
        trained_inverter=trained_inverter,
        client_keys=part("key/") if meta["colludes"] else None,
        other_update=Update({n: other[n] for n in meta["other_order"]}) if other else None,
        defense=meta["defense"],
        local=None if meta["local"] is None else LocalTraining(**meta["local"]),
        initial=part("initial/") or None,
    )
    draws = torch.Generator()
    draws.set_state(tensors["generator"])
    ordered = Update({name: update[name] for name in meta["order"]})
    later = [part(f"later {place}/") for place in range(len(meta["later"]))]
    rounds = tuple(
        Update({name: sent[name] for name in order})
        for sent, order in zip(later, meta["later"], strict=True)
    )
    return Observation(ordered, model, knowledge, Budget(**meta["budget"]), draws, rounds)


def _save(tensors: dict[str, Tensor], meta: dict[str, Any], path: Path) -> None:
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(whole, path, metadata={"json": json.dumps(meta)})


def _load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with safe_open(path, framework="pt") as file:
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
        meta: dict[str, Any] = json.loads(file.metadata()["json"])
    return tensors, meta
