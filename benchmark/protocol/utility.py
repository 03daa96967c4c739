"""What a utility protocol says: whom a defense is to cost nothing, and how they train."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from benchmark.contract import LocalTraining
from benchmark.data.catalogue import entry
from benchmark.victims import ImageSettings, TextSettings


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TrainingData(_Frozen):
    """What clients hold, of the public split; their model is judged on the private one."""

    name: str


class TrainingImages(TrainingData):
    """Images that clients hold."""

    size: int = Field(ge=4)
    """Side in pixels."""


class TrainingText(TrainingData):
    """Text that clients hold: all whole sequences of each user, nothing padded."""

    tokenizer: Literal["gpt2", "bert-base-uncased", "pydoc"]
    length: int = Field(ge=2)
    """Tokens of a sequence."""
    skip_lines: int = Field(default=0, ge=0)
    """At the head of each user's text, left out."""


Figure = Literal["accuracy", "perplexity"]
"""Share of labels told, higher is better; of the next token, lower is."""


class Training(_Frozen):
    """How clients and server train."""

    clients: int = Field(ge=1)
    """All of them answer in every round."""
    split: Literal["iid", "dirichlet"] = "iid"
    """`dirichlet`: each class is shared out by a draw from Dirichlet(`concentration`) (Hsu et al.,
    2019)."""
    concentration: float | None = Field(default=None, gt=0)
    rounds: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    """Images, or sequences, of a client's update."""
    local_steps: int = Field(default=1, ge=1)
    """1 is FedSGD; of more, FedAvg, each step is of the whole batch."""
    local_rate: float | None = Field(default=None, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Of the server, which takes a step of SGD by the mean update."""
    rates: tuple[float, ...] = Field(min_length=1)
    """Of the server: each defense takes the one that does best on a held-out part of the public
    split."""
    held_out: float = Field(default=0.2, gt=0, lt=1)

    @model_validator(mode="after")
    def _fits(self) -> Training:
        if (self.split == "dirichlet") != (self.concentration is not None):
            raise ValueError("split: dirichlet and concentration stand together")
        if (self.local_steps > 1) != (self.local_rate is not None):
            raise ValueError("local_steps above 1 and local_rate stand together")
        if any(rate <= 0 for rate in self.rates):
            raise ValueError("rates are above 0")
        return self

    def local(self) -> LocalTraining | None:
        """Return a client's training; None where it sends one gradient."""
        if self.local_rate is None:
            return None
        return LocalTraining(self.local_steps, self.batch_size, self.local_rate)


class UtilityProtocol(_Frozen):
    """What makes two prices of a defense comparable."""

    figure: ClassVar[Figure]
    """What a price is told in."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$")
    version: int = Field(ge=1)
    title: str
    description: str
    track: Literal["vision", "text"]
    data: TrainingData
    victim: ImageSettings | TextSettings
    training: Training
    seeds: tuple[int, ...] = Field(min_length=1)
    defenses: tuple[str, ...]
    """As `--defense` names them."""
    leakage: tuple[str, ...]
    """The protocols of the same victim whose worst case stands beside the price."""

    @model_validator(mode="after")
    def _names_exist(self) -> UtilityProtocol:
        entry(self.data.name)
        return self

    @cached_property
    def digest(self) -> str:
        """Identify all that decides a price: by the rate, all seeds do."""
        said = {"title", "description", "defenses", "leakage"}
        content = self.model_dump(mode="json", exclude=said, exclude_defaults=True)
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


class VisionUtility(UtilityProtocol):
    """What makes two accuracies comparable."""

    figure: ClassVar[Figure] = "accuracy"

    track: Literal["vision"] = "vision"
    data: TrainingImages
    victim: ImageSettings
    shuffled_by: str | None = None
    """A defense that shuffles images: what a trained victim makes of those is told too."""


class TextUtility(UtilityProtocol):
    """What makes two perplexities comparable."""

    figure: ClassVar[Figure] = "perplexity"

    track: Literal["text"]
    data: TrainingText
    victim: TextSettings

    @model_validator(mode="after")
    def _has_no_labels(self) -> TextUtility:
        if self.training.split == "dirichlet":
            raise ValueError("split: dirichlet shares out classes, and text has none; wanted iid")
        return self
