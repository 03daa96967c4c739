"""Parameter inspection: a client looks at the model it is sent before it trains it.

For images and text. A server that chose parameters to read updates leaves traces: layers that let
nothing through, or measure one thing many times, are matrices of low rank with rows that are alike
(Fowl et al., ICLR 2023, name both, and noise on the rows against them). A model with such a matrix
is refused, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from benchmark.api import Batch, Defense, RefusedError, Update, Victim

_SMALL = 8  # rows or columns below which a matrix tells little
_NULL = 1e-3  # of the largest singular value; random matrices keep theirs above
_MANY = 4096  # rows of which as many are looked at


@dataclass(frozen=True)
class ParameterInspection(Defense):
    """Refuses a model by the rank and the rows of its matrices."""

    rank: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Least share of a matrix's smaller side that its numerical rank is to be."""
    alike: Annotated[float, Field(gt=0, le=1)] = 0.999
    """Cosine from which on two rows count as one."""
    repeated: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Largest share of rows that may be like another."""

    def compute_update(
        self,
        batch: Batch,
        model: Victim,
        gradient: Callable[[Batch], Update],
        draws: np.random.Generator,
    ) -> Update:
        self.inspect(model)
        return gradient(batch)

    def inspect(self, model: Victim) -> None:
        """Raise RefusedError where a matrix is not finite, of low rank, or repeats its rows."""
        for name, weight in model.weights().items():
            matrix = weight.detach().flatten(1) if weight.dim() > 1 else weight[:0]
            if min(matrix.shape[-2:] if matrix.dim() > 1 else (0,)) < _SMALL:
                continue
            if not matrix.isfinite().all():
                raise RefusedError(f"model refused: {name} is not finite")
            if (found := self._rank(matrix)) < self.rank:
                raise RefusedError(f"model refused: {name} has {found:.0%} of its full rank")
            if (found := self._repeated(matrix)) > self.repeated:
                raise RefusedError(
                    f"model refused: {found:.0%} of the rows of {name} are like another"
                )

    def _rank(self, matrix: Tensor) -> float:
        """Return the numerical rank (rows, columns) over the smaller side."""
        tall = matrix if len(matrix) >= matrix.shape[1] else matrix.T
        squares = torch.linalg.eigvalsh(tall.T.double() @ tall.double())
        return float((squares > _NULL**2 * squares[-1]).double().mean()) if squares[-1] else 0.0

    def _repeated(self, matrix: Tensor) -> float:
        """Return the share of rows whose cosine with another one is large."""
        some = matrix[:: -(-len(matrix) // _MANY)]
        unit = some / some.norm(dim=1, keepdim=True).clamp_min(torch.finfo(some.dtype).tiny)
        cosines = unit @ unit.T
        cosines.fill_diagonal_(0)
        return float((cosines.abs().amax(1) >= self.alike).double().mean())
