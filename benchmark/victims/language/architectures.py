"""The language models: what each is, in one table. A new one is an entry here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from torch import nn

from benchmark.victims.language import anatomy
from benchmark.victims.language.transformer3 import START, Transformer3

if TYPE_CHECKING:
    from benchmark.victims.language.spec import TextSpec


class Anatomist(Protocol):
    """Says where a network keeps its parts."""

    def __call__(self, network: anatomy.Network, *, masked: bool) -> anatomy.TextAnatomy: ...


@dataclass(frozen=True)
class TextArchitecture:
    """A language model.

    Attributes:
        network: makes it in three steps (embed, states, logits), random weights from torch's
            global stream, or trained ones from a folder; ValueError for sizes that do not fit.
        anatomy: where a network keeps its parts.
        masked: whether it guesses masked tokens, rather than every next one.
        positions: tokens of the longest sequence it reads, as published.
        vocabulary: tokens that it knows, as published.
        start: the size at which embeddings start. Fixed positions are given it too: waves of
            height 1 would drown the tokens.
        trained: the mirror's folder of trained weights, and their repository at the model hub.
    """

    network: Callable[[TextSpec, Path | None], nn.Module]
    anatomy: Anatomist
    masked: bool
    positions: int
    vocabulary: int
    start: float
    trained: tuple[str, str] | None = None


def _gpt2(spec: TextSpec, folder: Path | None) -> nn.Module:
    from benchmark.victims.language.transformers_models import gpt2  # slow to import

    return gpt2(spec, folder)


def _bert(spec: TextSpec, folder: Path | None) -> nn.Module:
    from benchmark.victims.language.transformers_models import bert

    return bert(spec, folder)


ARCHITECTURES = {
    "transformer3": TextArchitecture(
        network=lambda spec, _: Transformer3(spec),
        anatomy=anatomy.transformer3,
        masked=False,
        positions=512,
        vocabulary=50257,
        start=START,
    ),
    "gpt2": TextArchitecture(
        network=_gpt2,
        anatomy=anatomy.gpt2,
        masked=False,
        positions=1024,
        vocabulary=50257,
        start=0.02,
        trained=("gpt2", "openai-community/gpt2"),
    ),
    "bert_base": TextArchitecture(
        network=_bert,
        anatomy=anatomy.bert,
        masked=True,
        positions=512,
        vocabulary=30522,
        start=0.02,
        trained=("bert-base-uncased", "google-bert/bert-base-uncased"),
    ),
}
"""By name; `start` of the library's models is the standard deviation that it draws with."""
