"""The function that a search minimises, one number a row, and how rows are laid out."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.search import Search
from benchmark.toolbox.matching.trace import Tracer
from benchmark.toolbox.matching.unknowns import Unknowns


@dataclass
class Problem:
    """The rows that still run: what each is matched to, and what has been spent.

    Attributes:
        plan: what is minimised.
        unknowns: what a row's values stand for.
        tracer: of the victim's network.
        target: one observed update a row.
        labels: what is known of each row's labels, int64, images' (rows, batch) and text's
            (rows, words); None where they are searched, or not read.
        spent: (rows,) gradients of the victim taken so far.
        apart: (rows,) float64, the objective alone, priors left out, when last evaluated.
        progress: share of the steps taken, in [0, 1).
        consensus: (rows, batch, channel, height, width), once restarts are registered.
    """

    plan: Search
    unknowns: Unknowns
    tracer: Tracer
    target: Target
    labels: Tensor | None
    spent: Tensor
    apart: Tensor
    progress: float = 0.0
    consensus: Tensor | None = None

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
        plan, inputs = self.plan, self.unknowns.inputs(values)
        known = None if self.labels is None else self.labels[rows]
        losses = torch.zeros(len(values), dtype=torch.float64, device=values.device)
        if plan.objective is not None:
            trace = self.tracer.trace(inputs, self.unknowns.loss(values, known))
            factor = plan.objective_schedule(self.progress)
            apart = plan.objective(trace, self.target.keep(rows))
            losses = losses + factor * apart
            self.spent[rows] += 1
            self.apart[rows] = apart.detach()
        for term in plan.terms:
            if factor := term.weight * term.schedule(self.progress):
                losses = losses + factor * term.prior(inputs).double()
        if plan.labelled is not None:
            assert known is not None
            losses = losses + plan.labelled.weight * plan.labelled.prior(inputs, known).double()
        if plan.registration is not None and self.consensus is not None:
            apart = (inputs - self.consensus[rows]).flatten(1).square().sum(1)
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
            apart=self.apart[rows],
            consensus=None if self.consensus is None else self.consensus[rows],
        )
