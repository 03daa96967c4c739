"""Tokens and positions out of bins.

A vector is token + position + marks, centred and scaled: its content entries are a multiple of one
known sum, so a bin is read by orthogonal least squares over all pairs of token and position, and
what it leaves says whether the reading is exact. Several vectors in one bin are several pairs.

Source: derived for this benchmark from equation 3 of Fowl et al. (ICLR 2023, Decepticons), whose
read-out divides the difference by that of the biases and gives up on bins that hold two.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from submissions.attacks.decepticon.bins import Bins
from submissions.attacks.decepticon.pairs import Pairs, Scores
from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class Readings:
    """Pairs of a position and a token, one a line; those of one bin follow one another.

    Attributes:
        bin: (readings,) int64.
        position: (readings,) int64.
        token: (readings,) int64, by row of the pairs' tokens.
        factor: (readings,), of the sum of token and position in the bin's vector.
        count: (readings,) int64, of readings in the same bin.
        exact: (readings,) bool, whether the bin is explained to the last digits.
    """

    bin: Tensor
    position: Tensor
    token: Tensor
    factor: Tensor
    count: Tensor
    exact: Tensor

    def __len__(self) -> int:
        return len(self.bin)

    @property
    def enough_exact(self) -> bool:
        """Whether enough are exact to tell marks by; with dropout or noise none is."""
        alone = self.exact & (self.count == 1)
        return int(self.exact.sum()) > CHOSEN.exact_readings * len(self) and bool(alone.any())

    def where(self, chosen: Tensor) -> Readings:
        """Return some lines, by mask or index."""
        return Readings(*(getattr(self, field.name)[chosen] for field in fields(self)))


def read(bins: Bins, pairs: Pairs, scores: Scores, *, masked: bool) -> Readings:
    """Read each bin by as few pairs as leave nothing of it.

    A pair at a time is added, each is chosen anew while the others stay, and tokens change places.
    A bin that none of this explains is read by the one pair that explains most. Where an exact
    reading is the exception (inputs with dropout, noise), all bins are read so.

    Args:
        bins: what they hold; those of one block have labels' gradients of one size.
        pairs: of centred tokens and positions.
        scores: of the bins' content.
        masked: whether the model is, whose sequences differ in gradient as in the number of masks.
    """
    vectors, blocks = bins.content, bins.blocks
    # what cancels or hardly counts is another way of writing the bin
    least = CHOSEN.least_factor_masked if masked else CHOSEN.least_factor
    position, token = (found[:, None] for found in scores.best())
    factors, left = pairs.fit(vectors, position, token)
    everything = torch.arange(len(vectors), device=vectors.device)
    done = left < CHOSEN.exact
    parts = [_lines(everything[done], position[done], token[done], factors[done], exact=True)]
    first = _lines(everything, position, token, factors, exact=False)
    open_ = everything[~done]
    usual = torch.ones(int(blocks.max()) + 1, device=vectors.device)
    for block in torch.unique(blocks).tolist():
        usual[block] = factors[done & (blocks == block)].abs().median()
    if len(open_) < CHOSEN.open_share * len(vectors):
        position, token = position[open_], token[open_]
        for _ in range(1, CHOSEN.most_pairs):
            position, token, factors, left = _grow(vectors[open_], pairs, position, token)
            ratio = factors.abs() / usual[blocks[open_]][:, None]
            done = (left < CHOSEN.exact) & (ratio > least).all(1)
            parts.append(
                _lines(open_[done], position[done], token[done], factors[done], exact=True)
            )
            open_, position, token = open_[~done], position[~done], token[~done]
    parts.append(first.where(open_))
    joined = [
        torch.cat([getattr(part, field.name) for part in parts]) for field in fields(Readings)
    ]
    return Readings(*joined)


def _lines(
    bins: Tensor, position: Tensor, token: Tensor, factors: Tensor, *, exact: bool
) -> Readings:
    count = torch.full_like(position, position.shape[1])
    bins = bins[:, None].expand_as(position)
    sure = torch.full_like(position, exact, dtype=torch.bool)
    return Readings(
        *[column.reshape(-1) for column in (bins, position, token, factors, count, sure)]
    )


def _grow(
    vectors: Tensor, pairs: Pairs, position: Tensor, token: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Add a pair to the k of each bin; return positions, tokens, factors (n, k + 1), and left."""
    more = pairs.scores(vectors, pairs.basis(position, token)).best()
    position, token = (
        torch.cat([old, new[:, None]], dim=1)
        for old, new in zip((position, token), more, strict=True)
    )
    factors, left = pairs.fit(vectors, position, token)
    for _ in range(CHOSEN.pair_sweeps):
        for one in range(position.shape[1]):
            bad = (left > CHOSEN.exact).nonzero()[:, 0]
            if not len(bad):
                return position, token, factors, left
            rest = [i for i in range(position.shape[1]) if i != one]
            basis = pairs.basis(position[bad][:, rest], token[bad][:, rest])
            position[bad, one], token[bad, one] = pairs.scores(vectors[bad], basis).best()
            factors, left = pairs.fit(vectors, position, token)
        for one in range(position.shape[1]):
            for other in range(one):  # the wrong token at each of two positions is a dead end
                swapped = token.clone()
                swapped[:, [one, other]] = token[:, [other, one]]
                again, rest_left = pairs.fit(vectors, position, swapped)
                better = rest_left < left
                token = torch.where(better[:, None], swapped, token)
                factors = torch.where(better[:, None], again, factors)
                left = torch.where(better, rest_left, left)
    return position, token, factors, left
