"""Norms, inner products and distances of gradients from their factors, none of them formed.

For a matrix with inputs x and output gradients g over a trial's tokens, and an observed G = U V^T:

- |G'|^2 = sum over tokens s, t of <x_s, x_t> <g_s, g_t>: a Gram product, tokens by tokens;
- <G, G'> = sum over tokens of <U^T g_t, V^T x_t>, or of <g_t, G x_t> where G has full rank.

The terms of a distance cancel near convergence: they are added in float64, and a distance may
still end a rounding below zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.contract import Update
from benchmark.toolbox.matching.absolute import absolute_distance
from benchmark.toolbox.matching.gradients import EmbeddingLookup, Gradient, Product, Trace, flatten
from benchmark.toolbox.matching.products import (
    LowRank,
    Seen,
    compare_products,
    compare_vectors,
    total,
)
from benchmark.toolbox.matching.rank import decompose_all

_SMALL = 2**16
"""Entries of a matrix up to which the updates are stacked: one call, not one a trial."""


@dataclass(frozen=True)
class Products:
    """What a loss needs of parameters, each (trials,) or (parameters, trials), float64.

    Attributes:
        dummy: |G'|^2.
        inner: <G, G'>.
        seen: |G|^2.
    """

    dummy: Tensor
    inner: Tensor
    seen: Tensor

    @property
    def squared_distance(self) -> Tensor:
        """|G' - G|^2."""
        return self.dummy - 2 * self.inner + self.seen


class Target:
    """The observed updates of a stack of trials, ready to be matched.

    Args:
        updates: one a trial; kept, not copied.
        names: the parameters to match.
    """

    def __init__(self, updates: Sequence[Update], names: Iterable[str]) -> None:
        self.names = tuple(names)
        self._updates = list(updates)
        self._seen: dict[str, Tensor] = {}
        self._vectors: dict[str, Tensor] = {}
        self._joined: dict[tuple[str, ...], tuple[Tensor, Tensor]] = {}
        self._small: dict[str, Tensor] = {}
        self._low: dict[str, LowRank] = {}
        for name in self.names:
            gradients = [update[name] for update in self._updates]
            self._seen[name] = torch.cat([total(g[None].square()) for g in gradients])
            if gradients[0].ndim < 2 or gradients[0].shape[0] == 1:
                self._vectors[name] = torch.stack(gradients).flatten(1)
                continue
            if gradients[0].numel() <= _SMALL:
                self._small[name] = torch.stack(gradients).flatten(2)
            if (low := decompose_all([g.flatten(1) for g in gradients])) is not None:
                self._low[name] = low

    def __len__(self) -> int:
        return len(self._updates)

    def keep(self, rows: Tensor) -> Target:
        """Return the target of some of the trials, in that order."""
        if torch.equal(rows, torch.arange(len(self), device=rows.device)):
            return self
        kept = object.__new__(Target)
        kept.names, kept._updates = self.names, [self._updates[i] for i in rows.tolist()]
        kept._seen = {name: seen[rows] for name, seen in self._seen.items()}
        kept._joined = {}
        kept._small = {name: small[rows] for name, small in self._small.items()}
        kept._vectors = {name: vector[rows] for name, vector in self._vectors.items()}
        kept._low = {n: LowRank(low.left[rows], low.right[rows]) for n, low in self._low.items()}
        return kept

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each decomposed parameter; the others are matched as they came."""
        return {name: low.left.shape[2] for name, low in self._low.items()}

    def products(self, trace: Trace, name: str) -> Products:
        """Return the norms and the inner product of one parameter's gradients, (trials,)."""
        _, found = self.compare(trace, [name])
        return Products(found.dummy[0], found.inner[0], found.seen[0])

    def compare(self, trace: Trace, names: Sequence[str]) -> tuple[list[str], Products]:
        """Return norms and inner products of some parameters, and their names in that order.

        Vectors come first: all of them are one operation.
        """
        gradients = trace.gradients
        vectors = {
            n: g for n in names if isinstance(g := gradients[n], Tensor) and n in self._vectors
        }
        tables = []
        if vectors:
            tables.append(
                compare_vectors(list(vectors.values()), *self._side_by_side(tuple(vectors)))
            )
        others = [name for name in names if name not in vectors]
        if others:
            pairs = [self._pair(gradients[name], name) for name in others]
            dummies, inners = zip(*pairs, strict=True)
            tables.append((torch.stack(dummies), torch.stack(inners)))
        order = [*vectors, *others]
        dummy, inner = (torch.cat(side) for side in zip(*tables, strict=True))
        return order, Products(dummy, inner, torch.stack([self._seen[name] for name in order]))

    def absolute(self, trace: Trace, name: str) -> Tensor:
        """Return the sum of |G' - G| over one parameter's entries, (trials,) float64."""
        gradient = trace.gradients[name]
        if isinstance(gradient, Product):
            seen = [update[name].flatten(1) for update in self._updates]
            return absolute_distance(gradient.inputs, gradient.outputs, seen)
        return total((flatten(gradient) - self.entries(name)).abs())

    def entries(self, name: str) -> Tensor:
        """Return one parameter's observed gradients, (trials, numel)."""
        if name in self._vectors:
            return self._vectors[name]
        return torch.stack([update[name].flatten() for update in self._updates])

    def _side_by_side(self, names: tuple[str, ...]) -> tuple[Tensor, Tensor]:
        """Return observed vectors, (trials, lengths together), and which one an entry is of."""
        if names not in self._joined:
            seen = [self._vectors[name] for name in names]
            owners = [torch.full(v.shape[1:], i, device=v.device) for i, v in enumerate(seen)]
            self._joined[names] = torch.cat(seen, 1), torch.cat(owners)
        return self._joined[names]

    def _matrices(self, name: str) -> Seen:
        if name in self._small:
            return self._small[name]
        if name in self._vectors:  # of a layer that writes one number
            return self._vectors[name][:, None]
        seen = [update[name].flatten(1) for update in self._updates]
        return seen[0][None] if len(seen) == 1 else seen

    def _pair(self, gradient: Gradient, name: str) -> tuple[Tensor, Tensor]:
        """Return |G'|^2 and <G, G'> of one parameter, each (trials,) float64."""
        if isinstance(gradient, Product):
            low, seen = self._low.get(name), self._matrices(name)
            return compare_products(gradient.inputs, gradient.outputs, seen, low)
        if isinstance(gradient, EmbeddingLookup):
            same = gradient.ids[:, :, None] == gradient.ids[:, None, :]
            taken = zip(self._updates, gradient.ids, strict=True)
            seen_rows = torch.stack([update[name][ids] for update, ids in taken])
            grams = gradient.outputs @ gradient.outputs.mT
            return total(same * grams), total(gradient.outputs * seen_rows)
        return total(gradient.square()), total(gradient * self.entries(name))
