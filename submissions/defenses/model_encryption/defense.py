"""Model encryption (Aso, Shiota and Kiya, 2023): embeddings under a key that clients share.

For images. Parameters and updates of the patch embedding are multiplied by an invertible matrix
E_a (their eq. 3), those of the positions are permuted by E_b, the class token's place fixed (eqs. 6
and 7). Both are linear, so the server adds updates to the encrypted model as it would to the plain
one (eqs. 9 to 12), and clients decrypt what it sends (eqs. 13 and 14). Everything else is in the
clear. Difference from the paper: E_a, there of "random" elements, is drawn with a condition number
that is stated, so that decryption costs no accuracy.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from benchmark.api import Defense, ImageVictim, Update, Victim


@dataclass(frozen=True)
class ModelEncryption(Defense):
    """The server holds the model, and receives updates, with both embeddings encrypted."""

    condition: Annotated[float, Field(ge=1, le=1e6)] = 10.0
    """Condition number of E_a: its largest over its least singular value."""

    def keyed(self, model: Victim, draws: np.random.Generator) -> Defense:
        parts = ImageVictim.of(model).anatomy
        pixels = model.weights()[f"{parts.patch_embedding}.weight"].flatten(1).shape[1]
        left, right = (np.linalg.qr(draws.standard_normal((pixels, pixels)))[0] for _ in range(2))
        values = np.geomspace(self.condition**0.5, self.condition**-0.5, pixels)
        order = np.arange(parts.position_offset + parts.patches)
        order[parts.position_offset :] = parts.position_offset + draws.permutation(parts.patches)
        return Keyed(
            torch.from_numpy(left * values @ right).to(model.device),
            torch.from_numpy(order).to(model.device),
        )


@dataclass(frozen=True, eq=False)
class Keyed(Defense):
    """The key, and what clients do with it.

    Attributes:
        matrix: (pixels, pixels) float64, E_a.
        order: (tokens,) int64: encrypted row i is plain row `order[i]`, which is E_b.
    """

    matrix: Tensor
    order: Tensor

    def client_keys(self) -> Mapping[str, Tensor]:
        """Return E_a and the rows of E_b, which any client can tell."""
        return {"matrix": self.matrix, "order": self.order}

    def server_view(self, model: Victim) -> Victim:
        """Return the encrypted model."""
        return _with_weights(model, self.encrypt(_weights(model), model))

    def client_view(self, model: Victim) -> Victim:
        """Return the decrypted model."""
        return _with_weights(model, self.decrypt(_weights(model), model))

    def protect_update(self, update: Update, model: Victim, draws: np.random.Generator) -> Update:
        return Update(self.encrypt(dict(update), model))

    def encrypt(self, tensors: dict[str, Tensor], model: Victim) -> dict[str, Tensor]:
        """Return tensors by parameter name with both embeddings under the key."""
        return self._apply(tensors, model, self.matrix, self.order)

    def decrypt(self, tensors: dict[str, Tensor], model: Victim) -> dict[str, Tensor]:
        """Return what `encrypt` was given, to float32's rounding."""
        return self._apply(tensors, model, torch.linalg.inv(self.matrix), self.order.argsort())

    def _apply(
        self, tensors: dict[str, Tensor], model: Victim, matrix: Tensor, order: Tensor
    ) -> dict[str, Tensor]:
        parts, done = ImageVictim.of(model).anatomy, dict(tensors)
        name = f"{parts.patch_embedding}.weight"
        if name in done:  # (width, pixels...): the paper's E_pat is its transpose
            weight = done[name]
            turned = weight.flatten(1).double() @ matrix.T
            done[name] = turned.to(weight.dtype).view_as(weight)
        if parts.position in done:
            done[parts.position] = done[parts.position][:, order]
        return done


def _weights(model: Victim) -> dict[str, Tensor]:
    return {name: weight.detach() for name, weight in model.weights().items()}


def _with_weights(model: Victim, chosen: dict[str, Tensor]) -> Victim:
    made = copy.deepcopy(model)
    for name, weight in made.weights().items():
        weight.data.copy_(chosen[name])
    return made
