"""What every token in every place would add to the gradients of the imprinted layers.

A lone sequence needs no marks, so that what enters the layers is known of each token and place: its
vector stands in every row whose edge it is above, times a factor that hardly differs.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from benchmark.api import TextVictim, Update, Victim, weights
from benchmark.toolbox.text.imprinting import measuring


@dataclass(frozen=True)
class Atoms:
    """Tokens in places.

    Attributes:
        vectors: (places, tokens, width + 1), what the layers read, and a one for their bias.
        rows: (places, tokens) int64, number of rows below each.
    """

    vectors: Tensor
    rows: Tensor

    @staticmethod
    def of(model: Victim, places: int) -> Atoms:
        """Return the atoms of the whole vocabulary in the first places."""
        parts, known = TextVictim.of(model).anatomy, weights(model)
        tokens, positions = known[parts.token_embedding], known[parts.position][:places]
        first = [block.first for block in parts.blocks[: measuring(parts)]]
        direction = first[0].weight.of(known)[0]
        edges = torch.cat([-layer.bias.of(known) for layer in first if layer.bias is not None])
        vectors = tokens.new_empty(places, len(tokens), tokens.shape[1] + 1)
        level = parts.blocks[0].projection.bias  # all that the silent attention adds
        assert level is not None
        for place, position in enumerate(positions):
            sums = tokens + position + level.of(known)
            sums = sums - sums.mean(1, keepdim=True)
            vectors[place, :, :-1] = sums / sums.std(1, correction=0, keepdim=True)
        vectors[:, :, -1] = 1
        return Atoms(vectors, torch.searchsorted(edges, vectors[:, :, :-1] @ direction))

    def chosen(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Return vectors (places, width + 1), and rows (places,), of a token (places,) in each."""
        place = torch.arange(len(tokens))
        return self.vectors[place, tokens], self.rows[place, tokens]

    def products(self, tokens: Tensor) -> Tensor:
        """Return inner products of a token (places,) in each place, (places, places) float64."""
        vectors, rows = self.chosen(tokens)
        return torch.minimum(rows[:, None], rows) * (vectors @ vectors.T).double()


def running_sums(update: Update, model: Victim) -> Tensor:
    """Return the sums of all rows of the imprinted layers before each, (rows + 1, width + 1).

    In float64, by which an atom's product with the whole is its vector's with one of them. Of the
    sign that makes factors positive.
    """
    parts, known, rows = TextVictim.of(model).anatomy, weights(model), []
    for block in parts.blocks[: measuring(parts)]:
        weight, bias = block.first.weight.of(update), block.first.bias
        assert bias is not None
        signs = block.second.weight.of(known)[-1].sign()
        rows.append(-signs[:, None] * torch.cat([weight, bias.of(update)[:, None]], dim=1))
    joined = torch.cat(rows).double()
    return torch.cat([torch.zeros_like(joined[:1]), joined.cumsum(0)])
