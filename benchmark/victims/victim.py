"""A victim: a network, its normalisation, and the spec that makes it again."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from benchmark.errors import DataUnavailable, ProtocolError
from benchmark.victims.april import AprilTransformer, BlockA, BlockB
from benchmark.victims.positions import fix_positions
from benchmark.victims.spec import VictimSpec

APRIL_BLOCKS: dict[str, type[BlockA] | type[BlockB]] = {"april_a": BlockA, "april_b": BlockB}


class Victim(nn.Module):
    """The model that a client trains, on images float32 in [0, 1], (batch, channel, size, size).

    Parameters are named as in the network: a timm model's updates carry timm's names.
    """

    def __init__(self, network: nn.Module, spec: VictimSpec) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.network, self.spec = network, spec
        self.register_buffer("mean", torch.tensor(spec.mean).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(spec.std).view(-1, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.network((images - self.mean) / self.std)

    def weights(self) -> dict[str, Tensor]:
        """Return every trained parameter by name: what an update has an entry for."""
        return dict(self.network.named_parameters())

    def with_fixed_positions(self, encoding: Literal["sincos_1d", "sincos_2d"]) -> Victim:
        """Return a copy whose positions are fixed sine-cosine buffers."""
        twin = copy.deepcopy(self)
        twin.spec = self.spec.model_copy(update={"position": encoding})
        fix_positions(twin.network, encoding)
        return twin

    def with_width(self, width: int, generator: torch.Generator) -> Victim:
        """Return a fresh victim of another width, with weights drawn from the generator."""
        if self.spec.weights == "pretrained":
            raise ProtocolError(f"{self.spec.architecture}: pretrained weights have one width")
        return build(self.spec.model_copy(update={"width": width}), generator)


def build(spec: VictimSpec, generator: torch.Generator, mirror: Path | None = None) -> Victim:
    """Make a victim, on the CPU, in evaluation mode (dropout off).

    Args:
        spec: the victim in full.
        generator: its only source of randomness.
        mirror: a folder whose `weights/NAME.safetensors` serves pretrained timm weights; else
            the model hub's local cache does.

    Raises:
        ProtocolError: no such architecture, or sizes that do not fit.
        DataUnavailable: pretrained weights that lie on neither place.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    with torch.random.fork_rng(devices=[]):  # layers initialise from torch's global stream
        torch.manual_seed(seed)
        network = _network(spec, mirror)
        _initialise_tokens(network, spec)
    if spec.position != "learned":
        fix_positions(network, spec.position)
    return Victim(network, spec).eval()


def _network(spec: VictimSpec, mirror: Path | None) -> nn.Module:
    sizes = {"patch": spec.patch, "width": spec.width, "depth": spec.depth}
    if spec.architecture in APRIL_BLOCKS:
        if spec.weights == "pretrained":
            raise ProtocolError(f"{spec.architecture} has no pretrained weights; wanted random")
        given = {name: value for name, value in sizes.items() if value is not None}
        try:
            return AprilTransformer(
                APRIL_BLOCKS[spec.architecture],
                channels=spec.channels,
                size=spec.size,
                classes=spec.classes,
                **given,
            )
        except ValueError as error:
            raise ProtocolError(f"{spec.architecture}: {error}") from error
    family, _, name = spec.architecture.partition("/")
    if family != "timm":
        known = ", ".join([*APRIL_BLOCKS, "timm/NAME"])
        raise ProtocolError(f"no victim {spec.architecture!r}; known: {known}")
    return _timm_network(name, spec, mirror)


def _timm_network(name: str, spec: VictimSpec, mirror: Path | None) -> nn.Module:
    import timm
    from timm.models.vision_transformer import VisionTransformer

    sizes = {"patch_size": spec.patch, "embed_dim": spec.width, "depth": spec.depth}
    options: dict[str, Any] = {key: value for key, value in sizes.items() if value is not None}
    options |= {"num_classes": spec.classes, "img_size": spec.size, "in_chans": spec.channels}
    if not timm.is_model(name):
        raise ProtocolError(f"timm has no model {name!r}; wanted a name of timm.list_models()")
    if not timm.models.is_model_in_modules(name, ["vision_transformer", "deit"]):
        raise ProtocolError(f"timm/{name} is no ViT or DeiT; wanted one of those")
    if spec.weights == "pretrained":
        options["pretrained"] = True
        options["pretrained_cfg_overlay"] = {"file": str(_pretrained_file(name, mirror))}
    try:
        network: nn.Module = timm.create_model(name, **options)
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        raise ProtocolError(f"timm/{name}: {_first_line(error)}") from error
    if not isinstance(network, VisionTransformer):
        raise ProtocolError(
            f"timm/{name} is a {type(network).__name__}; wanted a plain ViT or DeiT"
        )
    patch = network.patch_embed.patch_size[0]
    if spec.size % patch:
        raise ProtocolError(f"timm/{name}: {patch} px patches must tile {spec.size} px")
    for block in network.blocks:
        cast(
            "Any", block
        ).attn.fused_attn = False  # the fused kernel cannot be differentiated twice
    return network


def _pretrained_file(name: str, mirror: Path | None) -> Path:
    """Return a local file of a timm model's weights; a run never downloads by itself."""
    import timm
    from huggingface_hub import try_to_load_from_cache

    places = ["GRADLEAK_DATA/weights (unset)"]
    if mirror is not None:
        local = mirror / "weights" / f"{name}.safetensors"
        if local.is_file():
            return local
        places = [str(local)]
    settings = timm.get_pretrained_cfg(name)
    repository = settings.hf_hub_id if settings else None
    cached = try_to_load_from_cache(repository, "model.safetensors") if repository else None
    if isinstance(cached, str):
        return Path(cached)
    raise DataUnavailable(
        f"pretrained weights of timm/{name}",
        [*places, "the cache of the model hub"],
        f"python -c \"import timm; timm.create_model('{name}', pretrained=True)\"",
    )


def _initialise_tokens(network: nn.Module, spec: VictimSpec) -> None:
    start = spec.initialisation
    for names, std in (
        (("cls_token", "dist_token"), start.class_token_std),
        (("pos_embed",), start.position_std),
    ):
        for name in names:
            token = getattr(network, name, None)
            if std is not None and token is not None:
                nn.init.normal_(token, std=std)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
