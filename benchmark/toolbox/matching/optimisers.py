"""Optimisers over a stack of trials: they advance together, each with its own state.

No sum runs over trials, so a trial that diverges does not touch its neighbours.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor

Evaluate = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Values (rows, numel), and which trials of the current stack they are, (rows,) int64 -> losses
(rows,), gradients (rows, numel), both detached. Optimisers never write to what it returns."""

_DECREASE = 1e-4  # Wolfe's constants as in Nocedal and Wright (2006), section 3.1
_CURVATURE = 0.9


class OptimiserState(Protocol):
    """What an optimiser knows of the trials that still run."""

    def step(
        self, values: Tensor, evaluate: Evaluate, rate: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Advance every trial by one step; `values` stay as they are.

        Args:
            values: (trials, numel) float.
            evaluate: losses and gradients of any trials.
            rate: (trials,) learning rates.

        Returns:
            New values (trials, numel); losses (trials,) at the old values; stopped (trials,) bool,
            True where another step would change nothing. A trial whose gradient is not finite keeps
            its values or gets NaN.
        """
        ...

    def keep(self, rows: Tensor) -> None:
        """Forget all trials but these, (rows,) int64 or (trials,) bool."""
        ...


class Optimiser(Protocol):
    """Settings of an optimiser."""

    @property
    def most(self) -> int:
        """Most evaluations of a step."""
        ...

    def within(self, granted: int) -> Optimiser:
        """Return it as it is where a step takes no more evaluations than these, 1 or more."""
        ...

    def start(self, values: Tensor) -> OptimiserState:
        """Return the state before the first step at values (trials, numel)."""
        ...


@dataclass(frozen=True)
class Adam:
    """Adam (Kingma and Ba, 2015), AdamW and signed Adam; one evaluation a step, never stops.

    Attributes:
        betas: decay of the first and second moments, each in [0, 1).
        eps: added to the root of the second moment.
        weight_decay: pull towards zero, per unit of learning rate where decoupled.
        decoupled: the decay acts on the values (AdamW, Loshchilov and Hutter, 2019), else it is
            part of the gradient.
        sign: each gradient entry is replaced by its sign (Geiping et al., 2020), before any decay.
    """

    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0
    decoupled: bool = False
    sign: bool = False

    def __post_init__(self) -> None:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"Adam: betas are {self.betas}; both must lie in [0, 1)")

    @property
    def most(self) -> int:
        """Most evaluations of a step."""
        return 1

    def within(self, granted: int) -> Adam:
        """Return it: a step takes one."""
        return self

    def start(self, values: Tensor) -> _AdamState:
        """Return the state before the first step at values (trials, numel)."""
        return _AdamState(self, values)


class _AdamState:
    def __init__(self, settings: Adam, values: Tensor) -> None:
        self.settings = settings
        self.steps = 0
        self.first = torch.zeros_like(values)  # moments, (trials, numel)
        self.second = torch.zeros_like(values)

    def step(
        self, values: Tensor, evaluate: Evaluate, rate: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        adam, (beta1, beta2) = self.settings, self.settings.betas
        losses, gradients = evaluate(values, torch.arange(len(values), device=values.device))
        if adam.sign:  # the added zeros carry a NaN or an infinity on, which sign() would hide
            gradients = gradients.sign().add_(gradients, alpha=0)
        if adam.weight_decay and not adam.decoupled:
            gradients = gradients.add(values, alpha=adam.weight_decay)
        self.steps += 1
        self.first.lerp_(gradients, 1 - beta1)
        self.second.mul_(beta2).addcmul_(gradients, gradients, value=1 - beta2)
        rate = rate.to(values)[:, None]
        root = self.second.sqrt().div_((1 - beta2**self.steps) ** 0.5).add_(adam.eps)
        new = torch.div(self.first, root, out=root).mul_(rate / (beta1**self.steps - 1))
        if adam.weight_decay and adam.decoupled:
            new.addcmul_(values, 1 - rate * adam.weight_decay)
        else:
            new.add_(values)
        return new, losses, torch.zeros_like(losses, dtype=torch.bool)

    def keep(self, rows: Tensor) -> None:
        self.first, self.second = self.first[rows], self.second[rows]


@dataclass(frozen=True)
class LBFGS:
    """Limited-memory BFGS (Liu and Nocedal, 1989); stops where no step lowers the loss.

    The learning rate is the first step length a search tries; without a search, the length of
    every step. As in torch, the very first one is also divided by the gradient's L1 norm where
    that is above 1. What a search evaluated is not evaluated again by the next step, so the loss
    must be the same function at every step (values may be changed between steps).

    Attributes:
        history: curvature pairs kept a trial; one without positive curvature counts and is unused.
        line_search: most evaluations of a search for a step of the weak Wolfe conditions, by
            bracketing and bisection (Lewis and Overton, 2013); 0 takes every step as it comes.
        tolerance: a trial stops where no entry of its gradient is larger.
    """

    history: int = 10
    line_search: int = 20
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.history < 1:
            raise ValueError(f"LBFGS: history is {self.history}; it must be 1 or more")

    @property
    def most(self) -> int:
        """Most evaluations of a step."""
        return 1 + self.line_search

    def within(self, granted: int) -> LBFGS:
        """Return it, with a shorter search where fewer evaluations than it may take are granted."""
        return self if granted >= self.most else replace(self, line_search=granted - 1)

    def start(self, values: Tensor) -> _LBFGSState:
        """Return the state before the first step at values (trials, numel)."""
        return _LBFGSState(self, values)


class _LBFGSState:
    def __init__(self, settings: LBFGS, values: Tensor) -> None:
        self.settings = settings
        self.pairs: deque[tuple[Tensor, ...]] = deque(maxlen=settings.history)  # s, y, 1 / s.y
        self.scale = values.new_ones(len(values))  # of the inverse Hessian before any pair
        self.last: tuple[Tensor, ...] = ()  # values and gradients of the last step
        self.found: tuple[Tensor, ...] = ()  # values, losses and gradients where its search ended

    def step(
        self, values: Tensor, evaluate: Evaluate, rate: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        losses, gradients = self._evaluate_unknown(values, evaluate)
        length = rate.to(values)
        if self.last:
            self._remember(values - self.last[0], gradients - self.last[1])
        else:
            length = length / gradients.abs().sum(dim=1).clamp_min(1)
        self.last = values.clone(), gradients
        direction = self._direction(gradients)
        slope = _dot(gradients, direction)
        going = (slope < 0) & slope.isfinite() & losses.isfinite()
        going &= gradients.abs().amax(dim=1) > self.settings.tolerance
        length = length.where(going, 0)
        direction.masked_fill_(~going[:, None], 0)  # no step of length 0 along a NaN
        if not self.settings.line_search:
            return torch.addcmul(values, length[:, None], direction), losses, ~going
        steps, *there = self._search(values, evaluate, direction, slope, length, losses, gradients)
        new = torch.addcmul(values, steps[:, None], direction)
        self.found = new.clone(), *there
        return new, losses, (steps == 0) & (rate > 0)

    def keep(self, rows: Tensor) -> None:
        self.scale = self.scale[rows]
        self.last = tuple(tensor[rows] for tensor in self.last)
        self.found = tuple(tensor[rows] for tensor in self.found)
        for _ in range(len(self.pairs)):  # one at a time: two copies of the history are too many
            self.pairs.append(tuple(tensor[rows] for tensor in self.pairs.popleft()))

    def _evaluate_unknown(self, values: Tensor, evaluate: Evaluate) -> tuple[Tensor, Tensor]:
        """Return losses and gradients at values, evaluating only where no search ended."""
        if not self.found:
            return evaluate(values, torch.arange(len(values), device=values.device))
        known, losses, gradients = self.found
        rows = (values != known).any(dim=1).nonzero().squeeze(1)
        if len(rows):
            losses[rows], gradients[rows] = evaluate(values[rows], rows)
        return losses, gradients

    def _remember(self, moved: Tensor, turned: Tensor) -> None:
        """Store the change of values and of gradients, (trials, numel); no use where s.y <= 0."""
        product, square = _dot(moved, turned), _dot(turned, turned)
        limits = torch.finfo(moved.dtype)
        rounding = limits.eps * moved.norm(dim=1) * turned.norm(dim=1)
        useful = (product > rounding) & (torch.minimum(product, square) > limits.tiny)
        self.scale = torch.where(useful, product / square, self.scale)
        self.pairs.append((moved, turned, product.reciprocal().where(useful, 0)))

    def _direction(self, gradients: Tensor) -> Tensor:
        """Return minus the inverse Hessian times the gradients by the two-loop recursion."""
        direction, shares = gradients.neg(), []
        for moved, turned, inverse in reversed(self.pairs):
            shares.append(inverse * _dot(moved, direction))
            direction.addcmul_(turned, shares[-1][:, None], value=-1)
        direction.mul_(self.scale[:, None])
        for moved, turned, inverse in self.pairs:
            direction.addcmul_(moved, (shares.pop() - inverse * _dot(turned, direction))[:, None])
        return direction

    def _search(
        self,
        values: Tensor,
        evaluate: Evaluate,
        direction: Tensor,
        slope: Tensor,
        length: Tensor,
        losses: Tensor,
        gradients: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return step lengths (trials,), 0 where none lowers the loss; losses, gradients there.

        Trials whose length is 0 are not searched; a trial that is done is evaluated no more.
        """
        low, high = torch.zeros_like(length), torch.full_like(length, torch.inf)
        best_losses, best_gradients = losses.clone(), gradients.clone()
        rows = length.nonzero().squeeze(1)
        for _ in range(self.settings.line_search):
            if not len(rows):
                break
            step, ahead = length[rows], direction[rows]
            tried, turned = evaluate(torch.addcmul(values[rows], step[:, None], ahead), rows)
            end_slope = _dot(turned, ahead)
            fits = (tried <= losses[rows] + _DECREASE * step * slope[rows]) & tried.isfinite()
            fits &= tried < losses[rows]  # the required decrease may be lost in rounding
            fits &= end_slope.isfinite()
            good, bad = rows[fits], rows[~fits]
            low[good], high[bad] = step[fits], step[~fits]
            best_losses[good], best_gradients[good] = tried[fits], turned[fits]
            rows = rows[~fits | (end_slope < _CURVATURE * slope[rows])]
            length = torch.where(high.isinf(), 2 * low, (low + high) / 2)
        return low, best_losses, best_gradients


def _dot(left: Tensor, right: Tensor) -> Tensor:
    """Return inner products (trials,) of rows; no matrix product, which a GPU may round to TF32."""
    return (left * right).sum(dim=1)
