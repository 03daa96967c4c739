"""What a network's layers read and wrote, caught where they call torch.

Layers are known by the parameter they are called with, not by their class, so that
`functional.linear` on a tied table and the `addmm` of GPT-2's layers are traced as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from benchmark.errors import NotApplicable
from benchmark.toolbox.matching.gradients import EmbeddingLookup, Gradient, Product
from benchmark.toolbox.matching.linear import linear
from benchmark.toolbox.matching.smooth import gelu

Make = Callable[[Tensor], Gradient]
"""The gradient by what a layer wrote, (trials, tokens, features) -> that of a parameter."""


class Call(NamedTuple):
    """One call of a layer.

    Attributes:
        edge: of what it wrote, as it was before anything wrote over it.
        shape: of what it wrote.
        parameters: by name, how the gradient of each comes about.
    """

    edge: GradientEdge
    shape: Size
    parameters: dict[str, Make]


class Watch(TorchFunctionMode):
    """Keeps the calls of every layer that reads a wanted parameter, while it is entered.

    Args:
        names: of the wanted parameters, by id.
        trials: of the stack.
        rows: trials times batch, the leading dimension of what the network reads.

    Attributes:
        calls: in the order in which they were made.

    Raises:
        NotApplicable: within, where such a parameter is read by a function that is not traced.
    """

    def __init__(self, names: Mapping[int, str], trials: int, rows: int) -> None:
        super().__init__()
        self.names, self.trials, self.rows = names, trials, rows
        self.calls: list[Call] = []

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401  (whatever torch returns)
        """Call a function of torch, or what is traced in its place."""
        traced = _TRACED.get(func)
        if traced is not None:
            return traced(self, *args, **(kwargs or {}))
        found = func(*args, **(kwargs or {}))
        if isinstance(found, Tensor):
            for read in (*args, *(kwargs or {}).values()):
                if id(read) in self.names:
                    raise NotApplicable(f"{self.names[id(read)]} is read by {func.__name__}")
        return found

    def wants(self, *parameters: Tensor | None) -> bool:
        """Tell whether any of these is a wanted parameter."""
        return any(id(parameter) in self.names for parameter in parameters)

    def by_trial(self, tensor: Tensor) -> Tensor:
        """Return (rows, ..., features) as (trials, tokens, features)."""
        if tensor.shape[0] % self.rows:
            raise NotApplicable(f"a layer reads {tuple(tensor.shape)}; wanted {self.rows} rows")
        return tensor.reshape(self.trials, -1, tensor.shape[-1])

    def keep(self, written: Tensor, *made: tuple[Tensor | None, Make]) -> Tensor:
        """Keep a call; return what it wrote, which requires a gradient from here on."""
        parameters = {self.names[id(p)]: make for p, make in made if id(p) in self.names}
        if not written.requires_grad:  # nothing searched stands before
            written = written.detach().requires_grad_()
        self.calls.append(Call(get_gradient_edge(written), written.shape, parameters))
        return written


def _total(outputs: Tensor) -> Tensor:
    return outputs.sum(1)


def _linear(watch: Watch, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    frozen = not any(read is not None and read.requires_grad for read in (weight, bias))
    written = (linear if frozen else functional.linear)(x, weight, bias)
    if not watch.wants(weight, bias):
        return written
    inputs = watch.by_trial(x)
    return watch.keep(written, (weight, lambda g: Product(inputs, g)), (bias, _total))


def _addmm(
    watch: Watch, bias: Tensor, x: Tensor, weight: Tensor, *, beta: float = 1, alpha: float = 1
) -> Tensor:
    """Trace a layer whose weight is (in, out): the two factors change places."""
    written = torch.addmm(bias, x, weight, beta=beta, alpha=alpha)
    if not watch.wants(weight, bias):
        return written
    if (beta, alpha) != (1, 1):
        raise NotApplicable(f"a layer is an addmm of factors {beta} and {alpha}; wanted 1 and 1")
    inputs = watch.by_trial(x)
    return watch.keep(written, (weight, lambda g: Product(g, inputs)), (bias, _total))


def _conv2d(
    watch: Watch,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *rest: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Tensor:
    """Trace a convolution by patches that tile the image: a linear layer on each."""
    if not watch.wants(weight, bias):
        return functional.conv2d(x, weight, bias, *rest, **options)
    out, channels, p, q = weight.shape
    high, wide = x.shape[2] // p, x.shape[3] // q
    tiles = x[:, :, : high * p, : wide * q].reshape(-1, channels, high, p, wide, q)
    patches = tiles.permute(0, 2, 4, 1, 3, 5).reshape(len(x), high * wide, -1)
    inputs = watch.by_trial(patches)
    written = functional.linear(patches, weight.flatten(1), bias)
    written = watch.keep(written, (weight, lambda g: Product(inputs, g)), (bias, _total))
    return written.mT.reshape(len(x), out, high, wide)


def _layer_norm(
    watch: Watch,
    x: Tensor,
    shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    if weight is None or not watch.wants(weight, bias):
        return functional.layer_norm(x, shape, weight, bias, eps)
    normal = functional.layer_norm(x, shape, eps=eps)
    written = normal * weight if bias is None else torch.addcmul(bias, normal, weight)
    inputs = watch.by_trial(normal)
    return watch.keep(written, (weight, lambda g: (inputs * g).sum(1)), (bias, _total))


def _embedding(
    watch: Watch,
    ids: Tensor,
    table: Tensor,
    padding_idx: int | None = None,
    *rest: Any,  # noqa: ANN401
    **options: Any,  # noqa: ANN401
) -> Tensor:
    written = functional.embedding(ids, table, padding_idx, *rest, **options)
    if not watch.wants(table):
        return written
    if ids.ndim < 2 or ids.shape[0] == 1:  # looked up once: a copy a row, whose gradient is its own
        shape = (watch.rows, *ids.shape[-1:])
        ids, written = ids.expand(shape), written.expand(*shape, -1)
    ids = ids.reshape(watch.trials, -1)

    def lookup(outputs: Tensor) -> EmbeddingLookup:
        if padding_idx is not None:
            outputs = outputs * (ids != padding_idx % len(table))[..., None]
        return EmbeddingLookup(ids, outputs, len(table))

    return watch.keep(written, (table, lookup))


def _item(watch: Watch, tensor: Tensor, index: Any) -> Tensor:  # noqa: ANN401
    """Trace rows taken out of a table, as of positions that are not looked up."""
    if not watch.wants(tensor):
        return tensor[index]
    rows = torch.arange(len(tensor), device=tensor.device)[index]
    return _embedding(watch, rows, tensor)


def _gelu(watch: Watch, x: Tensor, **form: str) -> Tensor:
    if form.get("approximate") == "tanh":
        return functional.gelu(x, approximate="tanh")
    return gelu(x)


_TRACED: dict[Callable[..., Any], Callable[..., Tensor]] = {
    functional.linear: _linear,
    torch.addmm: _addmm,
    functional.conv2d: _conv2d,
    functional.layer_norm: _layer_norm,
    functional.embedding: _embedding,
    functional.gelu: _gelu,
    Tensor.__getitem__: _item,
}
