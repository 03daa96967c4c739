"""All sums of a token and a position, held against what bins hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from submissions.attacks.decepticon.thresholds import CHOSEN


@dataclass(frozen=True)
class Scores:
    """What one pair explains of each of n vectors, at each position.

    Attributes:
        share: (n, length), of the vector's square, by the best token there.
        token: (n, length) int64, that token's row.
    """

    share: Tensor
    token: Tensor

    def best(self) -> tuple[Tensor, Tensor]:
        """Return the position and the row of the token that explain most, each (n,) int64."""
        position = self.share.argmax(dim=1)
        return position, self.token.gather(1, position[:, None])[:, 0]


class Pairs:
    """All sums of a token and a position, which are never formed.

    Args:
        tokens: (candidates, entries).
        positions: (length, entries).
    """

    def __init__(self, tokens: Tensor, positions: Tensor) -> None:
        self.tokens, self.positions = tokens, positions
        squares = tokens.square().sum(1) + positions.square().sum(1)[:, None]
        self.squares = squares + 2 * positions @ tokens.T  # (length, candidates)

    def sums(self, position: Tensor, token: Tensor) -> Tensor:
        """Return the sums (..., entries) of positions and rows of tokens."""
        return self.positions[position] + self.tokens[token]

    def scores(self, vectors: Tensor, basis: Tensor | None = None) -> Scores:
        """Return how much of each vector's square one pair explains, at each position.

        Args:
            vectors: (n, entries).
            basis: (n, entries, k) orthonormal, explained already and not counted again.
        """
        size = max(1, CHOSEN.pair_cells // self.squares.numel())
        bases = [None] * len(vectors) if basis is None else torch.split(basis, size)
        found = [
            self._scores(part, off)
            for part, off in zip(torch.split(vectors, size), bases, strict=False)
        ]
        shares, tokens = zip(*found, strict=True)
        return Scores(torch.cat(shares), torch.cat(tokens))

    def _scores(self, vectors: Tensor, basis: Tensor | None) -> tuple[Tensor, Tensor]:
        whole = vectors.square().sum(1)[:, None]
        if basis is None:
            shares = self._products(vectors).square_().div_(self.squares)
        else:
            vectors = vectors - (basis @ (basis.mT @ vectors[:, :, None]))[:, :, 0]
            off = self.squares.expand(len(vectors), -1, -1).clone()
            for column in basis.unbind(2):
                off.sub_(self._products(column).square_())
            off.clamp_min_(CHOSEN.degenerate * self.squares)
            shares = self._products(vectors).square_().div_(off)
        values, tokens = shares.max(dim=2)
        return values / whole, tokens

    def _products(self, vectors: Tensor) -> Tensor:
        """Return inner products with all sums, (n, length, candidates)."""
        at, of = vectors @ self.positions.T, vectors @ self.tokens.T
        return at[:, :, None] + of[:, None, :]

    def fit(self, vectors: Tensor, position: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of k pairs (n, k) by least squares, and the share left (n,)."""
        sums = self.sums(position, token).mT
        factors = torch.linalg.lstsq(sums, vectors[:, :, None]).solution
        left = vectors - (sums @ factors)[:, :, 0]
        return factors[:, :, 0], left.norm(dim=1) / vectors.norm(dim=1)

    def basis(self, position: Tensor, token: Tensor) -> Tensor:
        """Return orthonormal bases (n, entries, k) of k pairs each."""
        return torch.linalg.qr(self.sums(position, token).mT).Q
