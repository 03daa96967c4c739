"""Names of a victim's tensors; one is then `slice.of(update)` or `slice.of(weights)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class ParameterSlice:
    """Rows of a named parameter; all of them where `rows` is None."""

    name: str
    rows: slice | None = None
    transposed: bool = False
    """Whether the parameter is stored (in, out); rows are then counted along `out`."""

    def of(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Return the tensor, (out, in), as a view into weights or an update."""
        tensor = tensors[self.name]
        if self.transposed:
            tensor = tensor.mT
        return tensor if self.rows is None else tensor[self.rows]


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer: its weight, (out, in), and its bias, (out,), where it has one."""

    weight: ParameterSlice
    bias: ParameterSlice | None
