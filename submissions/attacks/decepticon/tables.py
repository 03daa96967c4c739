"""What the server knows of the inputs before it reads any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.api import TextAnatomy, TextVictim, Victim, weights
from submissions.attacks.decepticon.layout import Layout
from submissions.attacks.decepticon.pairs import Pairs
from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class Tables:
    """Tokens in use, positions, layout.

    Attributes:
        parts: the victim's.
        layout: which entries serve for what.
        known: its parameters.
        mask: the token that hides others; None of a model that guesses every next one.
        words: (candidates,) int64, ids of the tokens that the update says were read.
        tokens: (candidates, width).
        positions: (places, width), of the places that send gradient.
        codes: (vocabulary,), of labels, in [1, 1 + CHOSEN.codes].
        noised: whether the update is.
        rounded: whether it is known to be: then what is zero may have been rounded away.
    """

    parts: TextAnatomy
    layout: Layout
    known: Mapping[str, Tensor]
    mask: int | None
    words: Tensor
    tokens: Tensor
    positions: Tensor
    codes: Tensor
    noised: bool
    rounded: bool

    @staticmethod
    def of(
        update: Mapping[str, Tensor], model: Victim, length: int, *, rounded: bool = False
    ) -> Tables:
        """Return the tables for sequences of a length."""
        parts, known = TextVictim.of(model).anatomy, weights(model)
        model = TextVictim.of(model)
        layout = Layout.of(parts)
        reached = length if parts.masked else length - 1  # a causal model's last is a label alone
        tokens, positions = known[parts.token_embedding], known[parts.position]
        lookups = update[parts.token_embedding][:, layout.content]
        noised = bool(lookups[:, 0].all())  # even tokens that nobody wrote have gradient there
        everything = torch.arange(len(lookups))
        words = everything if rounded else _read_words(lookups, noised=noised)
        codes = parts.decoder.weight.of(known)[:, layout.tail.start]
        return Tables(
            parts=parts,
            layout=layout,
            known=known,
            mask=model.spec.mask_token if parts.masked else None,
            words=words,
            tokens=tokens[words],
            positions=positions[:reached],
            codes=codes / codes[:-1].min(),
            noised=noised,
            rounded=rounded,
        )

    def pairs(self) -> Pairs:
        """Return tokens and positions as the bins hold them, centred on the content entries."""
        content = self.layout.content
        return Pairs(centred(self.tokens[:, content]), centred(self.positions[:, content]))

    def visible(self, position: Tensor) -> Tensor:
        """Return which marks tokens at positions carry, (n, marks) bool."""
        anchors = torch.tensor(self.layout.anchors).repeat_interleave(self.layout.share)
        return (position[:, None] >= anchors) | self.parts.masked

    def inputs(self, position: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return what enters the first block (n, width), and the scale it was divided by (n,)."""
        sums = self.positions[position] + self.tokens[token]
        if self.parts.embedding_norm is None:
            return sums, sums.new_ones(len(sums))
        scale = sums.std(1, correction=0)
        return centred(sums) / scale[:, None], scale

    def anchor_marks(self, anchor: int) -> Tensor:
        """Return the marks that each candidate leaves as the token at an anchor, (words, share)."""
        layout, everything = self.layout, torch.arange(len(self.words))
        inputs, _ = self.inputs(torch.full_like(everything, anchor), everything)
        if self.parts.pre_norm:
            inputs = centred(inputs) / inputs.std(1, correction=0, keepdim=True)
        strength = self.parts.blocks[0].projection.weight.of(self.known)[: layout.marks.stop]
        return strength.max() * inputs[:, layout.free : layout.free + layout.share]


def centred(rows: Tensor) -> Tensor:
    """Return rows less their means."""
    return rows - rows.mean(1, keepdim=True)


def above_noise(values: Tensor) -> float:
    """Return what values, most of which are noise, exceed by more than chance."""
    middle = values.median()
    return float(middle + CHOSEN.sigmas * 1.4826 * (values - middle).abs().median())


def _read_words(lookups: Tensor, *, noised: bool) -> Tensor:
    """Return the ids of the tokens whose embedding has gradient, beyond noise where there is any.

    The decoder reads nothing of the content entries, so that even a tied table has gradient there
    from the tokens looked up alone. Where noise hides some of a few, any token may be.

    Args:
        lookups: (vocabulary, content entries), gradient of the token table.
        noised: whether there is noise.
    """
    size = lookups.norm(dim=1)
    found = (size > (above_noise(size) if noised else 0)).nonzero()[:, 0]
    return torch.arange(len(size)) if noised and len(found) < CHOSEN.many_words else found
