"""Closed form for a batch: every image whole from one gradient, without labels or positions.

The first attention's inputs span batch * patches + prefix directions, in which each position's
patches lie in an affine set (`affine.py`). Attention tells which directions are whose
(`projectors.py`, `groups.py`, `refinement.py`). Within one image's span a patch is one
least-squares solve.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmark.toolbox.closedform.affine import AffineSets, affine_sets
from benchmark.toolbox.closedform.entrance import Entrance
from benchmark.toolbox.closedform.groups import token_groups
from benchmark.toolbox.closedform.lattice import snap
from benchmark.toolbox.closedform.projectors import Equations, complement, solutions
from benchmark.toolbox.closedform.refinement import refine
from benchmark.toolbox.closedform.solve import leading_rows, least_squares, row_space

_ON_SET = 1e-5  # a constant off its set over its distance from the point: 4e-7 shared, 4e-5 not
_LOST = 0.5  # of an image's patches: fewer directions may be missing for rounding alone
_ROUNDING = 2.0**-20  # of a gradient, off the span of its rows: float32's 2^-24, and room
_UNSETTLED = 0.04  # residual of the equations: up to 0.03 seen of images told apart, 0.06 of others


@dataclass(frozen=True)
class BatchAnswer:
    """What was read of a batch.

    Attributes:
        patches: (batch, patches, pixels), normalised by the victim, in float64.
        sets: in which each position's patches lie, whoever's they are.
        equations: (batch, tokens, dimension), of each image's solve within the sets: an error
            `directions @ c` is likely where `equations @ c` is short. Empty where the images were
            not told apart; then every one of `patches` is the sets' offsets.
    """

    patches: Tensor
    sets: AffineSets
    equations: Tensor

    @property
    def told_apart(self) -> bool:
        """Whether the images were."""
        return self.equations.numel() > 0

    def in_levels(self, scale: Tensor, shift: Tensor, generator: torch.Generator) -> Tensor:
        """Return the patches, those with every pixel a whole level where such are found.

        A level is `scale * patch + shift`, each (pixels,). Wants the extra `lattice` where
        rounding is not enough.
        """
        if not self.told_apart:
            return self.patches
        sets = self.sets.rescale(scale, shift)
        mixing = sets.directions.T @ (scale[:, None] * self.sets.directions)
        metrics = torch.linalg.solve(mixing.T, self.equations.mT).mT
        levels = scale * self.patches + shift
        found = snap(levels, sets, metrics=list(metrics), generator=generator)
        return (found.patches - shift) / scale


def patches_of_batch(
    entrance: Entrance,
    batch: int,
    *,
    constants: Tensor,
    device: torch.device,
    generator: torch.Generator,
) -> BatchAnswer:
    """Return the patches of every image of a batch, in any order of the images.

    Images that share a patch at a position share its token, which joins them. Tokens that are
    missing of the span are looked for among constant patches, and those found are set aside as
    prefix tokens are.

    Args:
        entrance: of the victim, with an update.
        batch: images, two or more.
        constants: (any, pixels), patches that images may share: black and white.
        device: where the equations are solved.
        generator: draws the sketches of the row spaces.
    """
    seen = _Seen.of(entrance, batch, constants, generator)
    apart = seen.tell_apart(batch, device)
    if apart is None:
        patches = seen.sets.offsets.expand(batch, -1, -1)
        return BatchAnswer(patches, seen.sets, patches.new_empty(0))
    solved = [seen.solve(own) for own in apart]
    patches, equations = (torch.stack(part) for part in zip(*solved, strict=True))
    return BatchAnswer(patches, seen.sets, equations)


@dataclass(frozen=True)
class _Seen:
    """The span of a batch's tokens, and what is known in it.

    Attributes:
        entrance: of the victim.
        span: (inputs, rank) orthonormal.
        sets: of patches.
        shared: (found, 2), position and index of each constant patch that images share.
        shared_tokens: (rank, found), in the span.
    """

    entrance: Entrance
    span: Tensor
    sets: AffineSets
    shared: Tensor
    shared_tokens: Tensor

    @classmethod
    def of(
        cls, entrance: Entrance, batch: int, constants: Tensor, generator: torch.Generator
    ) -> _Seen:
        patches, prefix = entrance.patches, entrance.prefix.shape[1]
        tokens, pixels = batch * patches + prefix, entrance.embedding_gradient.shape[1]
        basis, clear = leading_rows(entrance.gradient, tokens, generator)
        rows = row_space(entrance.embedding_gradient, min(batch * patches, pixels), generator)

        def read(rank: int) -> _Seen:
            span = basis[:, :rank]
            sets = affine_sets(span, rows, entrance, max(rank - patches - prefix, 0))
            # sums of patches are patches of no image: where they lie on sets too, all patches do
            sums = (entrance.embedding_gradient.sum(0) / entrance.embedding_gradient.norm())[None]
            shared = _NONE if len(_on_sets(sums, sets)) else _on_sets(constants, sets)
            normed = entrance.tokens(constants[shared[:, 1]], shared[:, 0])
            return cls(entrance, span, sets, shared, span.T @ normed)

        if clear < tokens:
            found = read(clear)
            if len(found.shared) or _lost(entrance.gradient, basis, tokens - clear, patches):
                return found
        # the weakest directions lie in the noise, and are there all the same
        return replace(read(tokens), shared=_NONE, shared_tokens=basis.new_empty(tokens, 0))

    def tell_apart(self, batch: int, device: torch.device) -> list[Tensor] | None:
        """Return a basis (rank, any) of the span of each image's tokens, the prefix among them."""
        if not (self.entrance.query_gradient.any() and self.entrance.key_gradient.any()):
            return None
        known = torch.cat([self.span.T @ self.entrance.prefix, self.shared_tokens], dim=1)
        common, patches = torch.linalg.qr(known)[0], self.entrance.patches
        least = max(patches - len(set(self.shared[:, 0].tolist())), 1)
        most = patches if len(self.shared) else least
        size = self.span.shape[1] - common.shape[1]
        if not batch * least <= size <= batch * most:
            return None
        entrance = self.entrance
        equations = Equations.observed(
            entrance.query,
            entrance.key,
            entrance.query_gradient,
            entrance.key_gradient,
            span=self.span,
            common=common,
        )
        found = solutions(equations.to(device), batch)
        groups = token_groups(found, least, most)
        if groups is None:
            return None
        groups, residual = refine(equations, groups)
        if residual > _UNSETTLED:
            return None
        rest = complement(common)
        if not len(self.shared):
            return [torch.cat([common, rest @ group], dim=1) for group in groups]
        return self._with_shared(known, rest, groups)

    def _with_shared(
        self, known: Tensor, rest: Tensor, groups: list[Tensor]
    ) -> list[Tensor] | None:
        """Return the images' spans where tokens were set aside: which image has which of them.

        A token that is not an image's leaves no gradient of logits between them, in any head. In
        the basis of `known` and the groups, each group's part along such a token is thereby the
        solution of linear equations; along a token of the image's own it has none, and matters not.
        """
        theta = self._theta()
        if theta is None:
            return None
        basis = torch.linalg.inv(torch.cat([known, rest @ torch.cat(groups, dim=1)], dim=1))
        logits = basis @ theta @ basis.T  # (heads, rank, rank)
        first = known.shape[1]
        found = slice(first - len(self.shared), first)
        spans = []
        for group in groups:
            own = slice(first, first + group.shape[1])
            first = own.stop
            inner = torch.cat([logits[:, own, own], logits[:, own, own].mT]).flatten(0, 1)
            outer = torch.cat([logits[:, own, found], logits[:, found, own].mT]).flatten(0, 1)
            along = least_squares(inner, outer)  # (tokens, found)
            left = (outer - inner @ along).norm(dim=0) / outer.norm(dim=0)
            theirs = left.argsort()[: len(left) - (self.entrance.patches - group.shape[1])]
            mine = left.argsort()[len(theirs) :]
            tokens = rest @ group + self.shared_tokens[:, theirs] @ along[:, theirs].T
            parts = [known[:, : found.start], self.shared_tokens[:, mine], tokens]
            spans.append(torch.linalg.qr(torch.cat(parts, dim=1))[0])
        return spans

    def _theta(self) -> Tensor | None:
        """Return every head's Theta, (heads, rank, rank); None where it is not all observed."""
        given = self.entrance
        if self.span.shape[1] > given.query.shape[1]:
            return None
        from_query = least_squares(given.query @ self.span, given.key_gradient @ self.span)
        from_key = least_squares(given.key @ self.span, given.query_gradient @ self.span)
        return (from_query + from_key.mT) / 2

    def solve(self, own: Tensor) -> tuple[Tensor, Tensor]:
        """Return the patches (patches, pixels) whose tokens lie in one image's span (rank, any).

        And the equations (rank, dimension) of what is open in the sets.
        """
        given, sets = self.entrance, self.sets
        known = given.weight @ sets.offsets.T + given.offsets
        known = self.span.T @ (known + given.shift[:, None] * sets.offset_shifts)
        free = given.weight @ sets.directions + given.shift[:, None] * sets.direction_shifts
        free = self.span.T @ free
        known, free = (part - own @ (own.T @ part) for part in (known, free))
        return sets.offsets - (sets.directions @ least_squares(free, known)).T, free


_NONE = torch.empty(0, 2, dtype=torch.int64)


def _lost(gradient: Tensor, basis: Tensor, missing: int, patches: int) -> bool:
    """Tell whether directions are missing because tokens depend on each other, not for noise."""
    left = gradient - gradient @ basis @ basis.T
    return missing > _LOST * patches and float(left.norm() / gradient.norm()) < _ROUNDING


def _on_sets(constants: Tensor, sets: AffineSets) -> Tensor:
    """Return position and index, (found, 2), of the constant patches that lie on their sets."""
    placed = constants[:, None].expand(-1, len(sets.offsets), -1)  # (constants, positions, pixels)
    away = (placed - sets.offsets).square().mean(-1).sqrt()
    return (sets.distances(placed) < _ON_SET * away).T.nonzero()
