"""What a victim is, in full: two equal specs and one seed make the same weights."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from benchmark.errors import ProtocolError

SIZES = frozenset({"patch", "width", "depth", "heads"})
"""The settings of size, of which an architecture takes some."""
_CHECKPOINTS = (".safetensors", ".pth", ".pt")


class Initialisation(BaseModel):
    """Where random weights come from; it decides whether matching attacks work at all."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: Literal["torch", "timm"] = "torch"
    """`torch`: the defaults of torch's layers. `timm`: the model's own start.

    timm's ViTs and Swins start as timm has it either way. `timm` starts the last norm of each
    ResNet branch at zero, so that no gradient enters the branch; `torch` starts it at one.
    """
    position_std: float | None = Field(default=None, ge=0)
    """Positions drawn from N(0, std^2); None leaves them as `layers` makes them."""
    class_token_std: float | None = Field(default=None, ge=0)
    """Class and distillation tokens drawn from N(0, std^2); None leaves them."""


class ImageSettings(BaseModel):
    """The part of a victim that a protocol chooses."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    """`april_a`, `april_b`, `face_transformer`, `cifar/NAME`, `timm/NAME` or `huggingface/NAME`.

    `cifar/` has resnet20, resnet32 and resnet56; `timm/` any of its ViTs, DeiTs, Swins, ResNets;
    `huggingface/` any image classifier of `transformers`, by its repository at the hub. The key
    `huggingface: NAME` says the same.
    """
    weights: Literal["random", "pretrained"] = "random"
    checkpoint: str | None = None
    """File in the mirror whose tensors, named as the network's, take the place of random ones.

    A `.safetensors`, or a state dict in a `.pth` or `.pt`, read without unpickling objects.
    """
    trained_on: str | None = None
    """Data set on whose public split `gradleak train` trains the weights, before any client does.

    It is the protocol's own, since the classes are. `training.Stage` says how.
    """
    epochs: int | None = Field(default=None, ge=1)
    """Passes over that split; stands with `trained_on` alone."""
    initialisation: Initialisation = Initialisation()
    position: Literal["learned", "sincos_1d", "sincos_2d", "vaswani", "zeros"] = "learned"
    """The sine-cosine ones are fixed: no parameter, and so no gradient; so are zeros."""
    patch: int | None = Field(default=None, ge=1)
    """Side of a patch in pixels; None is the architecture's own, as for width and depth.

    A ProtocolError where the architecture has none to choose.
    """
    width: int | None = Field(default=None, ge=1)
    """Embedding width; Swin's is that of its first stage."""
    depth: int | None = Field(default=None, ge=1)
    """Number of blocks."""
    heads: int | None = Field(default=None, ge=1)
    """Attention heads; not timm's to choose."""
    mean: tuple[float, ...] | None = None
    """Per channel; None is that of the data's public split. The victim normalises inside itself.

    Pretrained weights want those of their training: `cifar_resnet.MEAN` and `STD`, for one.
    """
    std: tuple[float, ...] | None = None
    """Likewise."""

    @model_validator(mode="before")
    @classmethod
    def _of_the_hub(cls, given: Any) -> Any:  # noqa: ANN401  (whatever the file holds)
        if not isinstance(given, dict) or "huggingface" not in given:
            return given
        name = given["huggingface"]
        if "architecture" in given:
            raise ValueError("huggingface and architecture stand together; wanted one of them")
        if not isinstance(name, str):
            raise ValueError("huggingface: wanted the name of a repository, OWNER/NAME")
        rest = {key: value for key, value in given.items() if key != "huggingface"}
        return {"architecture": f"huggingface/{name}", **rest}

    @field_validator("checkpoint")
    @classmethod
    def _lies_in_the_mirror(cls, path: str | None) -> str | None:
        if path is None:
            return None
        if not all(parts := path.split("/")) or ".." in parts:
            raise ValueError("wanted a path within the mirror")
        if not path.endswith(_CHECKPOINTS):
            raise ValueError(f"wanted a file that ends in {', '.join(_CHECKPOINTS)}")
        return path

    @model_validator(mode="after")
    def _starts_once(self) -> ImageSettings:
        if self.checkpoint is not None and self.weights != "random":
            raise ValueError("a checkpoint replaces random weights; wanted weights: random")
        if (self.trained_on is None) != (self.epochs is None):
            raise ValueError("trained_on and epochs stand together; wanted both or neither")
        if self.trained_on is not None and self.checkpoint is not None:
            raise ValueError("a checkpoint is trained already; wanted it without trained_on")
        return self


class Jigsaw(BaseModel):
    """What Masked Jigsaw Puzzles add to a victim; see `jigsaw.py`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unknown: bool = False
    """Whether masked patches share one trained position in place of their own."""
    index: bool = False
    """Whether a second table of positions is added to the first."""
    localisation: Literal["pca", "linear", "mlp"] | None = None
    """How positions are mapped to places: by their two principal directions, or trained."""
    weight: float = Field(default=0.01, ge=0)
    """Of the localisation error in the loss."""


class Bottleneck(BaseModel):
    """A variational bottleneck before a victim's head; see `bottleneck.py`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: int = Field(default=256, ge=1)
    """Dimensions of the latent distribution."""
    weight: float = Field(default=0.001, ge=0)
    """Of the divergence in the loss."""


class ImageSpec(ImageSettings):
    """A victim in full: the protocol's settings and what the data adds."""

    channels: int
    size: int
    """Side of the square image in pixels."""
    classes: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    config: str | None = None
    """What `config.json` says of a model of the hub, since a sandbox sees no file; read when the
    victim is made, and asked by no protocol."""
    jigsaw: Jigsaw | None = None
    """What a defense added; no protocol asks for it."""
    bottleneck: Bottleneck | None = None
    """Likewise."""

    def refuse(self, *settings: str) -> None:
        """Raise ProtocolError where one of the named settings is given a value."""
        for name in sorted(settings):
            if (value := getattr(self, name)) is not None:
                raise ProtocolError(f"{self.architecture} takes no {name}; got {name} {value}")
