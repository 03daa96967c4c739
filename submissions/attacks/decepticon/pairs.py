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
        self.many = len(tokens) > CHOSEN.many_candidates
        if self.many:
            self.by_token = self.squares.T.contiguous()  # rows are gathered, a few for each vector
            self.least = self.squares.amin(1)  # (length,), of any token there

    def sums(self, position: Tensor, token: Tensor) -> Tensor:
        """Return the sums (..., entries) of positions and rows of tokens."""
        return self.positions[position] + self.tokens[token]

    def scores(self, vectors: Tensor, basis: Tensor | None = None) -> Scores:
        """Return how much of each vector's square one pair explains, at each position.

        Args:
            vectors: (n, entries).
            basis: (n, entries, k) orthonormal, explained already and not counted again.
        """
        cells = len(self.tokens) if self.many else self.squares.numel()
        size = max(1, CHOSEN.pair_cells // cells)
        bases = [None] * len(vectors) if basis is None else torch.split(basis, size)
        found = [
            self._scores(part, off)
            for part, off in zip(torch.split(vectors, size), bases, strict=False)
        ]
        shares, tokens = zip(*found, strict=True)
        return Scores(torch.cat(shares), torch.cat(tokens))

    def _scores(self, vectors: Tensor, basis: Tensor | None) -> tuple[Tensor, Tensor]:
        whole, parts = vectors.square().sum(1)[:, None], [vectors]
        if basis is not None:
            left = vectors - (basis @ (basis.mT @ vectors[:, :, None]))[:, :, 0]
            parts = [left, *basis.unbind(2)]
        at, of = ([part @ rows.T for part in parts] for rows in (self.positions, self.tokens))
        if self.many:
            each = [
                self._of_many([part[i] for part in at], [part[i] for part in of])
                for i in range(len(vectors))
            ]
            values, tokens = (torch.stack(found) for found in zip(*each, strict=True))
        else:
            values, tokens = _shares(at, of, self.squares).max(dim=2)
        return values / whole, tokens

    def _of_many(self, at: list[Tensor], of: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the best token at each position, (length,) twice, of one vector.

        Tokens in the middle of all products can explain no more than the last that was tried at
        either end would of the shortest sum; only where that is more than was found, all are tried.

        Args:
            at: (length,) each, the positions' products with what is left of the vector, and with
                what is explained already.
            of: (candidates,) each, the tokens'.
        """
        tried, most = [], []
        for position, token in zip(at, of, strict=True):
            ends = [token.topk(CHOSEN.pair_ends, largest=high) for high in (True, False)]
            tried += [end.indices for end in ends]
            reached = [(position + end.values[-1]).square() for end in ends]
            most.append(torch.maximum(*reached))
        ids = torch.unique(torch.cat(tried))
        values, best = _shares([part[ids] for part in of], at, self.by_token[ids]).max(dim=0)
        off = self.least.clone()
        for columns in most[1:]:
            off -= columns
        bound = most[0] / off.clamp_min_(CHOSEN.degenerate * self.least)
        tokens, open_ = ids[best], (values < bound).nonzero()[:, 0]
        if len(open_):
            every = _shares([part[open_] for part in at], of, self.squares[open_])
            values[open_], tokens[open_] = every.max(dim=1)
        return values, tokens

    def fit(self, vectors: Tensor, position: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of k pairs (n, k) by least squares, and the share left (n,)."""
        sums = self.sums(position, token).mT
        factors = torch.linalg.lstsq(sums, vectors[:, :, None]).solution
        left = vectors - (sums @ factors)[:, :, 0]
        return factors[:, :, 0], left.norm(dim=1) / vectors.norm(dim=1)

    def basis(self, position: Tensor, token: Tensor) -> Tensor:
        """Return orthonormal bases (n, entries, k) of k pairs each."""
        return torch.linalg.qr(self.sums(position, token).mT).Q


def _shares(rows: list[Tensor], columns: list[Tensor], squares: Tensor) -> Tensor:
    """Return what sums explain of vectors, times the vectors' squares, (..., rows, columns).

    Args:
        rows: (..., rows) each, products with one part of the sums: of what is left of the vectors,
            and of what is explained already.
        columns: (..., columns) each, with the other.
        squares: (rows, columns), of the sums.
    """

    def products(i: int) -> Tensor:
        return rows[i][..., :, None] + columns[i][..., None, :]

    off = squares
    if len(rows) > 1:
        off = squares.expand(*rows[0].shape, -1).clone()
        for i in range(1, len(rows)):
            off.sub_(products(i).square_())
        off.clamp_min_(CHOSEN.degenerate * squares)
    return products(0).square_().div_(off)
