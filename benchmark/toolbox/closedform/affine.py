"""What may stand at each position of a batch: one affine set of patches a position.

For B images of T patches the inputs of the first attention span B*T + 1 directions. A patch may
stand at position t only if its embedding there lies in that span, and the B true ones do, so the
set holds them all: it is a_t + V, where V, the same at every position, is spanned by the
differences of two images at one position and has dimension T*(B - 1).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmark.toolbox.closedform.entrance import Entrance


@dataclass(frozen=True)
class AffineSets:
    """The patches `offsets[t] + directions @ c` that may stand at position t, in float64.

    Attributes:
        offsets: (positions, pixels), a point of each set, orthogonal to the directions.
        directions: (pixels, dimension), orthonormal.
        offset_shifts: (positions,), the factor of the norm's shift that belongs to each offset;
            zeros where the norm has none.
        direction_shifts: (dimension,), the same of the directions: the factor of a patch is
            `offset_shifts[t] + direction_shifts @ c`.
    """

    offsets: Tensor
    directions: Tensor
    offset_shifts: Tensor
    direction_shifts: Tensor

    @property
    def dimension(self) -> int:
        """Number of directions."""
        return self.directions.shape[1]

    def distances(self, patches: Tensor) -> Tensor:
        """Return how far patches (..., positions, pixels) lie off their sets, (..., positions).

        A root mean square over the pixels, in the unit of the sets.
        """
        off = patches - self.offsets
        off = off - (off @ self.directions) @ self.directions.T
        return off.square().mean(-1).sqrt()

    def rescale(self, scale: Tensor, shift: Tensor) -> AffineSets:
        """Return the sets of the patches `scale * patch + shift`, each (pixels,): other units."""
        directions, mixing = torch.linalg.qr(scale[:, None] * self.directions)
        offsets = scale * self.offsets + shift
        along = offsets @ directions
        direction_shifts = torch.linalg.solve(mixing.T, self.direction_shifts)
        return replace(
            self,
            offsets=offsets - along @ directions.T,
            directions=directions,
            offset_shifts=self.offset_shifts - along @ direction_shifts,
            direction_shifts=direction_shifts,
        )


def affine_sets(span: Tensor, rows: Tensor, entrance: Entrance, dimension: int) -> AffineSets:
    """Return the sets of patches, in the victim's normalised pixels.

    Solves `P token(x) = 0`, P the projector off the span, over the row space of the embedding's
    gradient. As in `patches_from_span`, the norm's scale is free and its shift comes with an
    unknown factor. The `dimension` least directions of that system are taken for null, whatever
    rounding has left of them.

    Args:
        span: (inputs, rank) orthonormal, of the first attention's inputs.
        rows: (pixels, rank) orthonormal, the row space of the patch embedding's gradient.
        entrance: the tokens as functions of a patch.
        dimension: of the sets: positions * (batch - 1) where no two images share a patch.
    """
    unknown, known = entrance.weight @ rows, entrance.offsets
    if entrance.shift.any():  # token = (weight x + offset) / s + shift: one unknown more, s
        unknown = torch.cat([unknown, entrance.shift[:, None]], dim=1)
    unknown, known = (part - span @ (span.T @ part) for part in (unknown, known))
    left, values, right = torch.linalg.svd(unknown)
    count, columns = rows.shape[1], unknown.shape[1]
    rank = max(columns - dimension, 0)
    solution = -right[:rank].T @ ((left[:, :rank].T @ known) / values[:rank, None])
    null = right[rank:].T
    shifts = torch.zeros(1, null.shape[1] + known.shape[1], dtype=rows.dtype)
    if columns > count:
        shifts = torch.cat([null[count:], solution[count:]], dim=1)
    found = AffineSets(
        offsets=(rows @ solution[:count]).T,
        directions=rows @ null[:count],
        offset_shifts=shifts[0, null.shape[1] :],
        direction_shifts=shifts[0, : null.shape[1]],
    )
    pixels = torch.ones(rows.shape[0], dtype=rows.dtype)
    return found.rescale(pixels, torch.zeros_like(pixels))
