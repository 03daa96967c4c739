"""Tokens and positions out of the gradients of imprinted first MLP layers.

Within a block, the gradients of two neighbouring rows differ by the vectors between their two
thresholds, each weighted by the gradient that reached its token. A vector is token + position +
marks, centred and scaled: its content entries are a multiple of one known sum, so a rung is read by
orthogonal least squares over all pairs of token and position, and what it leaves says whether the
reading is exact. Several vectors on one rung are several pairs.

Source: derived for this benchmark from equation 3 of Fowl et al. (ICLR 2023, Decepticons), whose
read-out divides the difference by that of the biases and gives up on rungs that hold two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

import torch
from torch import Tensor, nn

from benchmark.toolbox.text.denoise import jumps
from benchmark.toolbox.text.layout import layout, measured
from benchmark.victims import TextVictim, weights

EXACT = 1e-3
"""A rung of which less is left, as a share of its norm, is read beyond doubt."""
_SIGNAL = 0.02  # of the largest difference; a rung below it holds nothing but rounding
_CELLS = 2**23  # vectors times positions times tokens at a time
_DEGENERATE = 1e-4  # share of a pair's square that lies off those already read
_MOST = 4  # pairs on one rung
_SWEEPS = 2


def rungs(update: Mapping[str, Tensor], model: nn.Module, tokens: int) -> tuple[Tensor, Tensor]:
    """Return the differences of neighbouring rows that hold something.

    Args:
        update: gradients by name.
        model: the imprinted victim.
        tokens: number of tokens that send gradient; how many jumps noise may hide.

    Returns:
        vectors (rungs, width), and the block of each, (rungs,) int64.
    """
    parts, known = TextVictim.of(model).anatomy, weights(model)
    place, count = layout(parts), measured(parts)
    vectors, noised = [], is_noised(update, model)
    for i, block in enumerate(parts.blocks[:count]):
        signs = block.second.weight.of(known)[-1].sign()
        rows = block.first.weight.of(update) * signs[:, None]
        if noised:
            lost = jumps(rows, tokens // count)[1]
        else:
            lost = rows[:-1] - rows[1:]
        if i == count - 1:  # above the highest threshold comes nothing
            lost = torch.cat([lost, rows[-1:]])
        vectors.append(lost)
    sizes = [lost[:, place.content].norm(dim=1) for lost in vectors]
    least = _SIGNAL * max(float(size.max()) for size in sizes if len(size))
    blocks = torch.arange(count).repeat_interleave(torch.tensor([len(lost) for lost in vectors]))
    held = torch.cat(sizes) > least
    found = [lost[size > least] for lost, size in zip(vectors, sizes, strict=True)]
    return torch.cat(found), blocks[held]


def is_noised(update: Mapping[str, Tensor], model: nn.Module) -> bool:
    """Tell whether even tokens that nobody wrote have gradient in their content entries."""
    parts = TextVictim.of(model).anatomy
    table = update[parts.token_embedding][:, layout(parts).content]
    return bool(table[:, 0].all())


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

    def scores(self, vectors: Tensor, basis: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return how much of each vector's square one pair explains, at each position.

        Args:
            vectors: (n, entries).
            basis: (n, entries, k) orthonormal, explained already and not counted again.

        Returns:
            The best token's share (n, length), and that token's row (n, length) int64.
        """
        size = max(1, _CELLS // self.squares.numel())
        bases = [None] * len(vectors) if basis is None else torch.split(basis, size)
        found = [
            self._scores(part, off)
            for part, off in zip(torch.split(vectors, size), bases, strict=False)
        ]
        values, tokens = zip(*found, strict=True)
        return torch.cat(values), torch.cat(tokens)

    def _scores(self, vectors: Tensor, basis: Tensor | None) -> tuple[Tensor, Tensor]:
        whole = vectors.square().sum(1)[:, None]
        if basis is None:
            shares = self._products(vectors).square_().div_(self.squares)
        else:
            vectors = vectors - (basis @ (basis.mT @ vectors[:, :, None]))[:, :, 0]
            off = self.squares.expand(len(vectors), -1, -1).clone()
            for column in basis.unbind(2):
                off.sub_(self._products(column).square_())
            off.clamp_min_(_DEGENERATE * self.squares)
            shares = self._products(vectors).square_().div_(off)
        values, tokens = shares.max(dim=2)
        return values / whole, tokens

    def _products(self, vectors: Tensor) -> Tensor:
        """Return inner products with all sums, (n, length, candidates)."""
        at, of = vectors @ self.positions.T, vectors @ self.tokens.T
        return at[:, :, None] + of[:, None, :]

    def best(self, vectors: Tensor, basis: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the position and the row of the token that explain most, each (n,) int64."""
        values, tokens = self.scores(vectors, basis)
        position = values.argmax(dim=1)
        return position, tokens.gather(1, position[:, None])[:, 0]

    def fit(self, vectors: Tensor, position: Tensor, token: Tensor) -> tuple[Tensor, Tensor]:
        """Return the factors of k pairs (n, k) by least squares, and the share left (n,)."""
        sums = self.sums(position, token).mT
        factors = torch.linalg.lstsq(sums, vectors[:, :, None]).solution
        left = vectors - (sums @ factors)[:, :, 0]
        return factors[:, :, 0], left.norm(dim=1) / vectors.norm(dim=1)


@dataclass(frozen=True)
class Readings:
    """Pairs of a position and a token, one a line; those of one rung follow one another.

    Attributes:
        rung: (readings,) int64.
        position: (readings,) int64.
        token: (readings,) int64, by row of the pairs' tokens.
        factor: (readings,), of the sum of token and position in the rung's vector.
        count: (readings,) int64, of readings on the same rung.
        exact: (readings,) bool, whether the rung is explained to the last digits.
    """

    rung: Tensor
    position: Tensor
    token: Tensor
    factor: Tensor
    count: Tensor
    exact: Tensor

    def __len__(self) -> int:
        return len(self.rung)

    def where(self, chosen: Tensor) -> Readings:
        """Return some lines, by mask or index."""
        return Readings(*(getattr(self, field.name)[chosen] for field in fields(self)))


def read(vectors: Tensor, blocks: Tensor, pairs: Pairs, least: float = 0.4) -> Readings:
    """Read each rung by as few pairs as leave nothing of it.

    A pair at a time is added, each is chosen anew while the others stay, and tokens change places.
    A rung that none of this explains is read by the one pair that explains most. Where an exact
    reading is the exception (inputs with dropout, noise), all rungs are read so.

    Args:
        vectors: (rungs, entries), content alone.
        blocks: (rungs,), of one block have labels' gradients of one size.
        pairs: of centred tokens and positions.
        least: factor of one of several pairs, as a share of the usual: what cancels or hardly
            counts is another way of writing the rung.
    """
    position, token = (found[:, None] for found in pairs.best(vectors))
    factors, left = pairs.fit(vectors, position, token)
    everything = torch.arange(len(vectors), device=vectors.device)
    done = left < EXACT
    parts = [_lines(everything[done], position[done], token[done], factors[done], exact=True)]
    first = _lines(everything, position, token, factors, exact=False)
    open_ = everything[~done]
    usual = torch.ones(int(blocks.max()) + 1, device=vectors.device)
    for block in torch.unique(blocks).tolist():
        usual[block] = factors[done & (blocks == block)].abs().median()
    if 5 * len(open_) < 4 * len(vectors):
        position, token = position[open_], token[open_]
        for _ in range(1, _MOST):
            position, token, factors, left = _grow(vectors[open_], pairs, position, token)
            ratio = factors.abs() / usual[blocks[open_]][:, None]
            done = (left < EXACT) & (ratio > least).all(1)
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
    rung: Tensor, position: Tensor, token: Tensor, factors: Tensor, *, exact: bool
) -> Readings:
    count = torch.full_like(position, position.shape[1])
    rung = rung[:, None].expand_as(position)
    sure = torch.full_like(position, exact, dtype=torch.bool)
    return Readings(
        *[column.reshape(-1) for column in (rung, position, token, factors, count, sure)]
    )


def _grow(
    vectors: Tensor, pairs: Pairs, position: Tensor, token: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Add a pair to the k of each rung; return positions, tokens, factors (n, k + 1), and left."""
    more = pairs.best(vectors, _basis(pairs, position, token))
    position, token = (
        torch.cat([old, new[:, None]], dim=1)
        for old, new in zip((position, token), more, strict=True)
    )
    factors, left = pairs.fit(vectors, position, token)
    for _ in range(_SWEEPS):
        for one in range(position.shape[1]):
            bad = (left > EXACT).nonzero()[:, 0]
            if not len(bad):
                return position, token, factors, left
            rest = [i for i in range(position.shape[1]) if i != one]
            basis = _basis(pairs, position[bad][:, rest], token[bad][:, rest])
            position[bad, one], token[bad, one] = pairs.best(vectors[bad], basis)
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


def _basis(pairs: Pairs, position: Tensor, token: Tensor) -> Tensor:
    return torch.linalg.qr(pairs.sums(position, token).mT).Q
