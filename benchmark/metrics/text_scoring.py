"""The scoring of one trial on text, and the piece of it that a reader is shown."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel, ConfigDict

from benchmark.errors import PluginError
from benchmark.metrics.scoring import Scorer, metric
from benchmark.metrics.text import sequence_assignment
from benchmark.metrics.text_overlap import Decode

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class TextScorer(Scorer):
    """Scores reconstructions of batches of text.

    Attributes:
        decode: ids to text, as a tokenizer's `decode`.
    """

    of: ClassVar = ("tokens",)
    decode: Decode

    def score(
        self, truth: Tensor, answer: Tensor, certain: Tensor | None = None
    ) -> dict[str, float | None]:
        """Return each metric of the batch, its sequences paired by most tokens right.

        Args:
            truth: (batch, length) int64.
            answer: as truth, in any order and on any device; -1 where there is no token.
            certain: (batch, length) bool, what the attack vouches for; None is nothing.

        Returns:
            Name to number; None where the metric cannot be had.

        Raises:
            PluginError: the answer, or what it vouches for, has another shape than the truth.
        """
        paired = _paired(truth, answer, certain)
        found: dict[str, float | None] = {}
        for name in self.metrics:
            found[name] = metric(name).score(*paired, **self.given(metric(name)))
        return found


class Excerpt(BaseModel):
    """The beginning of one sequence, truth beside reconstruction, readable pieces one a token."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    truth: tuple[str, ...]
    answer: tuple[str, ...]
    """Empty where the attack has no token."""
    exact: tuple[bool, ...]
    certain: tuple[bool, ...] | None
    """None where the attack vouches for nothing in the whole batch."""


def excerpt(
    truth: Tensor,
    answer: Tensor,
    certain: Tensor | None,
    pieces: Callable[[list[int]], list[str]],
    longest: int = 64,
) -> Excerpt:
    """Return the first true sequence beside its own reconstruction.

    Args:
        truth: (batch, length) int64.
        answer: as truth, in any order; -1 where there is no token.
        certain: (batch, length) bool, or None.
        pieces: ids to readable strings, one a token, spaces included.
        longest: tokens shown at most.

    Raises:
        PluginError: as `TextScorer.score`.
    """
    shown = [rows[0, :longest] for rows in _paired(truth, answer, certain)]
    wanted, given, vouched = (row.tolist() for row in shown)
    known = iter(pieces([token for token in given if token >= 0]))
    return Excerpt(
        truth=tuple(pieces(wanted)),
        answer=tuple(next(known) if token >= 0 else "" for token in given),
        exact=tuple(one == other for one, other in zip(wanted, given, strict=True)),
        certain=None if certain is None else tuple(vouched),
    )


def _paired(truth: Tensor, answer: Tensor, certain: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Return truth, answer and what is vouched for, on the CPU, in the order of the truth."""
    for name, tensor in (("tokens", answer), ("certain", certain)):
        if tensor is not None and tensor.shape != truth.shape:
            raise PluginError(
                f"reconstruction has {name} {tuple(tensor.shape)}; wanted {tuple(truth.shape)}"
            )
    truth, answer = truth.cpu(), answer.cpu()
    vouched = truth.new_zeros(truth.shape).bool() if certain is None else certain.cpu().bool()
    own = sequence_assignment(truth, answer)
    return truth, answer[own], vouched[own]
