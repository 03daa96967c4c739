"""The gradients of many trials from one forward and one backward pass, taken apart by layer.

A linear layer's weight gradient is `outputs.T @ inputs` over a trial's tokens, `outputs` being the
gradient of the loss by what the layer wrote. Both factors come from one backward pass by the
layers' outputs, in which no weight gradient is formed. Everything returned is differentiable by
the images.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from benchmark.toolbox.matching.gradients import (
    EmbeddingLookup,
    Gradient,
    Product,
    Trace,
    accumulate,
    join,
    make_empty,
)
from benchmark.toolbox.matching.watch import Watch

__all__ = ["EmbeddingLookup", "Gradient", "Loss", "Product", "Trace", "Tracer"]

Loss = Callable[[Tensor, slice], Tensor]
"""Logits (trials * batch, ...) and which trials they are of -> one loss a trial, (trials,)."""


class Tracer:
    """Takes a network's gradients apart.

    Linear, Embedding, LayerNorm and patch-embedding layers, transformers' Conv1D, and parameters
    that stand beside the tokens (positions, class tokens) are traced for a whole stack at once. A
    network with any other parameter (of convolutions, BatchNorm, relative positions) is traced one
    trial at a time, and those gradients are formed.

    Args:
        network: the victim's, in evaluation mode.
        wanted: names of the parameters; all by default.
        run: what turns a stack's rows into logits; the network's own forward by default.
    """

    def __init__(
        self,
        network: nn.Module,
        wanted: frozenset[str] | None = None,
        run: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self.network = network
        self._called = _Called(network, network if run is None else run)
        named = dict(network.named_parameters())
        self.wanted = frozenset(named) if wanted is None else wanted
        of_layers = {
            id(p) for m in network.modules() if _known(m) for p in m.parameters(recurse=False)
        }
        wants = {name: p for name, p in named.items() if name in self.wanted}
        self._layered = {name: p for name, p in wants.items() if id(p) in of_layers}
        self._names = {id(parameter): name for name, parameter in self._layered.items()}
        self._loose = {name: p for name, p in wants.items() if id(p) not in of_layers}
        self.together = all(_beside_tokens(parameter) for parameter in self._loose.values())
        """Whether a stack is traced at once."""

    def trace(self, images: Tensor, loss: Loss) -> Trace:
        """Run the network on the images of a stack and return the gradients of each trial.

        Args:
            images: (trials, batch, channel, height, width), as the network reads them, or any
                other input with trials and batch in front; requires a gradient.
            loss: one loss a trial.

        Raises:
            NotApplicable: a wanted parameter is read in a way that is not traced.
        """
        if self.together:
            return self._traced(images, loss, slice(0, len(images)))
        alone = [self._traced(images[i : i + 1], loss, slice(i, i + 1)) for i in range(len(images))]
        gradients = {name: join([t.gradients[name] for t in alone]) for name in alone[0].gradients}
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
        with Watch(self._names, trials, len(rows)) as watch:
            logits = self._called.on(rows, loose)
        losses = loss(logits, which)
        found = torch.autograd.grad(
            losses.sum(),
            [*loose.values(), *(call.edge for call in watch.calls)],
            create_graph=True,
            allow_unused=True,
        )
        gradients: dict[str, Gradient] = {}
        for (name, leaf), gradient in zip(loose.items(), found, strict=False):
            whole = torch.zeros_like(leaf) if gradient is None else gradient
            if self.together:
                whole = whole.view(trials, batch, -1).sum(1)
            gradients[name] = whole.reshape(trials, -1)
        for call, gradient in zip(watch.calls, found[len(loose) :], strict=True):
            if gradient is not None:
                outputs = watch.by_trial(gradient)
                for name, make in call.parameters.items():
                    accumulate(gradients, name, make(outputs))
        for name, parameter in self._layered.items():
            if name not in gradients:
                gradients[name] = make_empty(parameter.detach(), trials)
        return Trace(losses, gradients)


class _Called(nn.Module):
    """A network with what is run on it, so that its parameters can be replaced for a call."""

    def __init__(self, network: nn.Module, run: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.network, self.run = network, [run]  # in a list, a module is not registered twice

    def on(self, rows: Tensor, replaced: dict[str, Tensor]) -> Tensor:
        if not replaced:
            return self(rows)
        named = {f"network.{name}": tensor for name, tensor in replaced.items()}
        return functional_call(self, named, (rows,))

    def forward(self, rows: Tensor) -> Tensor:
        return self.run[0](rows)


def _known(layer: nn.Module) -> bool:
    if isinstance(layer, nn.Conv2d):  # patches that tile the image: a linear layer on each
        tiles = layer.kernel_size == layer.stride and layer.padding in ((0, 0), "valid")
        return tiles and layer.dilation == (1, 1) and layer.groups == 1
    if isinstance(layer, nn.Embedding):
        return layer.max_norm is None and not layer.scale_grad_by_freq
    if isinstance(layer, nn.LayerNorm):
        return layer.elementwise_affine and len(layer.normalized_shape) == 1
    # transformers' Conv1D by its name: no import of a library that takes seconds
    return isinstance(layer, nn.Linear) or type(layer).__name__ == "Conv1D"


def _beside_tokens(parameter: nn.Parameter) -> bool:
    return parameter.ndim == 3 and parameter.shape[0] == 1
