"""The function that a search minimises, one number a row, and how rows are laid out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.search import Search
from benchmark.toolbox.matching.trace import Tracer
from benchmark.victims import Victim


@dataclass
class Problem:
    """The rows that still run: what each is matched to, and what has been spent.

    A row's values are its normalised images and, where labels are searched, their logits:
    (batch * channel * height * width [+ batch * classes],).

    Attributes:
        plan: what is minimised.
        victim: its network is read, never changed.
        tracer: of the victim's network.
        target: one observed update a row.
        labels: (rows, batch) int64; None where they are searched, or no gradient is matched.
        batch: images a row.
        spent: (rows,) gradients of the victim taken so far.
        progress: share of the steps taken, in [0, 1).
        consensus: (rows, batch, channel, height, width), once restarts are registered.
    """

    plan: Search
    victim: Victim
    tracer: Tracer
    target: Target
    labels: Tensor | None
    batch: int
    spent: Tensor
    progress: float = 0.0
    consensus: Tensor | None = None

    @property
    def numel(self) -> int:
        """Values a row."""
        spec = self.victim.spec
        pixels = spec.channels * spec.size**2
        return self.batch * (pixels + (spec.classes if self.plan.labels == "searched" else 0))

    def images(self, values: Tensor) -> Tensor:
        """Return the normalised images, (rows, batch, channel, height, width): a view."""
        spec = self.victim.spec
        shape = (self.batch, spec.channels, spec.size, spec.size)
        return values[:, : self.batch * spec.channels * spec.size**2].view(-1, *shape)

    def evaluate(self, values: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return losses (rows,) float64 and gradients (rows, numel) of some of the rows.

        Args:
            values: (rows, numel).
            rows: which they are, (rows,) int64.
        """
        values = values.detach().requires_grad_()
        losses = self.losses(values, rows)
        (gradients,) = torch.autograd.grad(losses.sum(), values)
        return losses.detach(), gradients

    def losses(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return what is minimised, (rows,) float64, differentiable by the values."""
        plan, images = self.plan, self.images(values)
        losses = torch.zeros(len(values), dtype=torch.float64, device=values.device)
        if plan.objective is not None:
            wanted = self._probabilities(values, rows)
            trace = self.tracer.trace(images, partial(self._cross_entropy, wanted))
            factor = plan.objective_schedule(self.progress)
            losses = losses + factor * plan.objective(trace, self.target.keep(rows))
            self.spent[rows] += 1
        for term in plan.terms:
            if factor := term.weight * term.schedule(self.progress):
                losses = losses + factor * term.prior(images).double()
        if plan.registration is not None and self.consensus is not None:
            apart = (images - self.consensus[rows]).flatten(1).square().sum(1)
            if not plan.registration.squared:
                apart = apart.clamp_min(torch.finfo(apart.dtype).tiny).sqrt()
            losses = losses + plan.registration.weight * apart.double()
        return losses

    def keep(self, rows: Tensor) -> Problem:
        """Return the problem of some of the rows, (rows,) int64."""
        return replace(
            self,
            target=self.target.keep(rows),
            labels=None if self.labels is None else self.labels[rows],
            spent=self.spent[rows],
            consensus=None if self.consensus is None else self.consensus[rows],
        )

    def searched_labels(self, values: Tensor) -> Tensor | None:
        """Return the likeliest labels, (rows, batch) int64, where labels are searched."""
        if self.plan.labels == "given":
            return None
        return self._logits(values).argmax(2)

    def _logits(self, values: Tensor) -> Tensor:
        classes = self.victim.spec.classes
        return values[:, -self.batch * classes :].reshape(-1, self.batch, classes)

    def _probabilities(self, values: Tensor, rows: Tensor) -> Tensor:
        """Return the labels as class probabilities, (rows, batch, classes)."""
        if self.plan.labels == "searched":
            return self._logits(values).softmax(2)
        assert self.labels is not None
        return functional.one_hot(self.labels[rows], self.victim.spec.classes).to(values)

    def _cross_entropy(self, wanted: Tensor, logits: Tensor, which: slice) -> Tensor:
        found = logits.log_softmax(1).view(-1, self.batch, logits.shape[1])
        return -(wanted[which] * found).sum(2).mean(1)
