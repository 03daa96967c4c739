"""What a language victim is, in full: two equal specs and one seed make the same weights."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from benchmark.victims.language.architectures import ARCHITECTURES, TextArchitecture


class TextSettings(BaseModel):
    """The part of a language victim that a protocol chooses; None is the architecture's own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    architecture: str
    """`transformer3`, `gpt2`, or `bert_base`, which guesses masked tokens; the other two guess
    every next one."""
    weights: Literal["random", "pretrained"] = "random"
    position: Literal["learned", "sinusoidal"] | None = None
    """Own: learned. The sinusoidal ones are fixed: no parameter, and so no gradient."""
    activation: Literal["relu", "gelu"] | None = None
    """Own: ReLU of transformer3, GELU of the others (GPT-2's in its tanh form)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Every dropout probability of the network; acts in training mode alone."""
    width: int | None = Field(default=None, ge=1)
    depth: int | None = Field(default=None, ge=1)
    """Number of blocks."""
    heads: int | None = Field(default=None, ge=1)
    mlp: int | None = Field(default=None, ge=1)
    """Hidden width of each block's MLP; own: 1536 of transformer3, four widths of the others."""

    @field_validator("architecture")
    @classmethod
    def _is_known(cls, name: str) -> str:
        if name not in ARCHITECTURES:
            raise ValueError(f"no language model {name!r}; known: {', '.join(ARCHITECTURES)}")
        return name

    @property
    def kind(self) -> TextArchitecture:
        """What the architecture is."""
        return ARCHITECTURES[self.architecture]


class TextSpec(TextSettings):
    """A language victim in full: the protocol's settings and what the tokens add."""

    vocabulary: int = Field(ge=1)
    length: int = Field(ge=1)
    """Tokens of the longest sequence it can read."""
    mask_token: int | None = None
    """Stands for a token to guess; a masked language model needs one."""
