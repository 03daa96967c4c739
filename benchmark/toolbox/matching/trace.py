"""The gradients of many trials from one forward and one backward pass, taken apart by layer.

A linear layer's weight gradient is `outputs.T @ inputs` over a trial's tokens, `outputs` being the
gradient of the loss by what the layer wrote. Both factors come from one backward pass by the
layers' outputs, in which no weight gradient is formed. Everything returned is differentiable by
the images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

Loss = Callable[[Tensor, slice], Tensor]
"""Logits (trials * batch, classes) and which trials they are of -> one loss a trial, (trials,)."""


@dataclass(frozen=True)
class Product:
    """The gradient of a matrix as a product: `outputs.T @ inputs`, trial by trial.

    Attributes:
        inputs: (trials, tokens, in), what the layer read.
        outputs: (trials, tokens, out), the gradient of the loss by what it wrote.
    """

    inputs: Tensor
    outputs: Tensor

    def formed(self) -> Tensor:
        """Return the gradients themselves, (trials, out, in)."""
        return self.outputs.mT @ self.inputs


@dataclass(frozen=True)
class Lookup:
    """The gradient of an embedding table: row `ids[t]` gathers `outputs[t]`.

    Attributes:
        ids: (trials, tokens) int64.
        outputs: (trials, tokens, width), the gradient of the loss by what was looked up.
        rows: of the table.
    """

    ids: Tensor
    outputs: Tensor
    rows: int

    def formed(self) -> Tensor:
        """Return the gradients themselves, (trials, rows, width)."""
        trials, _, width = self.outputs.shape
        table = self.outputs.new_zeros(trials, self.rows, width)
        return table.scatter_add(1, self.ids[..., None].expand_as(self.outputs), self.outputs)


Gradient = Product | Lookup | Tensor
"""A parameter's gradient; a Tensor is (trials, numel), formed."""


@dataclass(frozen=True)
class Trace:
    """One pass over a stack of trials.

    Attributes:
        losses: (trials,), the victim's own.
        gradients: by parameter name.
    """

    losses: Tensor
    gradients: Mapping[str, Gradient]


class Tracer:
    """Takes a network's gradients apart.

    Linear, Embedding, LayerNorm and patch-embedding layers and parameters that stand beside the
    tokens (positions, class tokens) are traced for a whole stack at once. A network with any other
    parameter (of convolutions, BatchNorm, relative positions) is traced one trial at a time, and
    those gradients are formed.

    Args:
        network: the victim's, in evaluation mode.
        wanted: names of the parameters; all by default.
    """

    def __init__(self, network: nn.Module, wanted: frozenset[str] | None = None) -> None:
        self.network = network
        named = dict(network.named_parameters())
        self.wanted = frozenset(named) if wanted is None else wanted
        names = {id(parameter): name for name, parameter in named.items()}
        self._layers: dict[nn.Module, tuple[str | None, str | None]] = {}
        for layer in network.modules():
            if _known(layer):
                own = (
                    names[id(p)] if p is not None else None for p in (layer.weight, _bias(layer))
                )
                weight, bias = (name if name in self.wanted else None for name in own)
                if weight or bias:
                    self._layers[layer] = (weight, bias)
        covered = {name for pair in self._layers.values() for name in pair}
        self._loose = {name: named[name] for name in named if name in self.wanted - covered}
        self.together = all(_beside_tokens(parameter) for parameter in self._loose.values())
        """Whether a stack is traced at once."""

    def trace(self, images: Tensor, loss: Loss) -> Trace:
        """Run the network on the images of a stack and return the gradients of each trial.

        Args:
            images: (trials, batch, channel, height, width), as the network reads them, or any
                other input with trials and batch in front; requires a gradient.
            loss: one loss a trial.
        """
        if self.together:
            return self._traced(images, loss, slice(0, len(images)))
        alone = [self._traced(images[i : i + 1], loss, slice(i, i + 1)) for i in range(len(images))]
        gradients = {
            name: _joined([t.gradients[name] for t in alone]) for name in alone[0].gradients
        }
        return Trace(torch.cat([trace.losses for trace in alone]), gradients)

    def _traced(self, images: Tensor, loss: Loss, which: slice) -> Trace:
        trials, batch = images.shape[:2]
        rows = images.flatten(0, 1)
        loose = {}
        for name, parameter in self._loose.items():
            leaf = parameter.detach()
            if self.together:  # one copy a row, so that each row's gradient is its own
                leaf = leaf.expand(len(rows), *leaf.shape[1:])
            loose[name] = leaf.requires_grad_()
        with self._watched() as calls:
            logits = functional_call(self.network, loose, (rows,))
        losses = loss(logits, which)
        outputs = [written for _, _, written in calls]
        found = torch.autograd.grad(
            losses.sum(), [*loose.values(), *outputs], create_graph=True, materialize_grads=True
        )
        gradients: dict[str, Gradient] = {}
        for name, gradient in zip(loose, found, strict=False):
            if self.together:
                gradient = gradient.view(trials, batch, -1).sum(1)
            gradients[name] = gradient.reshape(trials, -1)
        for (layer, read, _), gradient in zip(calls, found[len(loose) :], strict=True):
            self._add(gradients, layer, read, gradient, trials)
        return Trace(losses, gradients)

    @contextmanager
    def _watched(self) -> Iterator[list[tuple[nn.Module, Tensor, Tensor]]]:
        """Keep what every traced layer reads and writes."""
        calls: list[tuple[nn.Module, Tensor, Tensor]] = []

        def hook(layer: nn.Module, read: tuple[Tensor, ...], written: Tensor) -> Tensor:
            if not written.requires_grad:  # looked up by fixed ids: nothing searched stands before
                written = written.detach().requires_grad_()
            calls.append((layer, read[0], written))
            return written

        handles = [layer.register_forward_hook(hook) for layer in self._layers]
        try:
            yield calls
        finally:
            for handle in handles:
                handle.remove()

    def _add(
        self,
        gradients: dict[str, Gradient],
        layer: nn.Module,
        read: Tensor,
        gradient: Tensor,
        trials: int,
    ) -> None:
        """Add what one call of a layer contributes to the gradients of its parameters."""
        weight, bias = self._layers[layer]
        if isinstance(layer, nn.Embedding):
            assert weight is not None
            outputs = gradient.reshape(trials, -1, gradient.shape[-1])
            ids = read.expand(gradient.shape[:-1]).reshape(trials, -1)
            _accumulate(gradients, weight, Lookup(ids, outputs, layer.num_embeddings))
            return
        inputs, outputs = _by_token(layer, read, gradient, trials)
        if bias is not None:
            _accumulate(gradients, bias, outputs.sum(1))
        if weight is not None and isinstance(layer, nn.LayerNorm):
            _accumulate(gradients, weight, (inputs * outputs).sum(1))
        elif weight is not None:
            _accumulate(gradients, weight, Product(inputs, outputs))


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):  # patches that tile the image: a linear layer on each
        return layer.kernel_size == layer.stride and layer.padding == (0, 0) and layer.groups == 1
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None and not layer.scale_grad_by_freq
    if isinstance(layer, nn.LayerNorm):
        return layer.elementwise_affine and len(layer.normalized_shape) == 1
    return isinstance(layer, nn.Linear)


def _bias(layer: nn.Module) -> nn.Parameter | None:
    return getattr(layer, "bias", None)


def _beside_tokens(parameter: nn.Parameter) -> bool:
    return parameter.ndim == 3 and parameter.shape[0] == 1


def _by_token(
    layer: nn.Module, read: Tensor, gradient: Tensor, trials: int
) -> tuple[Tensor, Tensor]:
    """Return a layer's inputs and output gradients, each (trials, tokens, features)."""
    if isinstance(layer, nn.Conv2d):
        read = functional.unfold(read, layer.kernel_size, stride=layer.stride).mT
        gradient = gradient.flatten(2).mT
    elif isinstance(layer, nn.LayerNorm):
        read = functional.layer_norm(read, layer.normalized_shape, eps=layer.eps)
    inputs = read.reshape(trials, -1, read.shape[-1])
    return inputs, gradient.reshape(trials, -1, gradient.shape[-1])


def _accumulate(gradients: dict[str, Gradient], name: str, more: Gradient) -> None:
    """Add to a parameter's gradient; a layer called twice reads more tokens."""
    there = gradients.get(name)
    if there is None:
        gradients[name] = more
    elif isinstance(there, Product) and isinstance(more, Product):
        gradients[name] = Product(
            torch.cat([there.inputs, more.inputs], 1), torch.cat([there.outputs, more.outputs], 1)
        )
    else:
        gradients[name] = _formed(there) + _formed(more)


def _formed(gradient: Gradient) -> Tensor:
    return gradient if isinstance(gradient, Tensor) else gradient.formed().flatten(1)


def _joined(alone: list[Gradient]) -> Gradient:
    """Join one parameter's gradients of trials traced alone."""
    first = alone[0]
    if isinstance(first, Tensor):
        return torch.cat([one for one in alone if isinstance(one, Tensor)])
    if isinstance(first, Product):
        products = [one for one in alone if isinstance(one, Product)]
        inputs = torch.cat([one.inputs for one in products])
        return Product(inputs, torch.cat([one.outputs for one in products]))
    lookups = [one for one in alone if isinstance(one, Lookup)]
    ids = torch.cat([one.ids for one in lookups])
    return Lookup(ids, torch.cat([one.outputs for one in lookups]), first.rows)
