"""The loop: all trials of a stack, and all restarts of a trial, are rows that advance together.

A row has its own target, labels, optimiser state and end; a row that ends leaves the stack. No sum
runs over rows, so what one does its neighbours do not feel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from benchmark.contract import Observation, Reconstruction, Stack
from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.problem import Problem
from benchmark.toolbox.matching.rows import Rows
from benchmark.toolbox.matching.schedules import Constant
from benchmark.toolbox.matching.search import Search
from benchmark.toolbox.matching.trace import Tracer
from benchmark.toolbox.matching.unknowns import Unknowns, unknowns
from benchmark.toolbox.priors import register

_SPARE = 2.0
"""A step's peak memory over what its graph saves: gradients under way, the optimiser's state."""


@dataclass(frozen=True)
class Found(Reconstruction):
    """What a search answers of one trial.

    Attributes:
        mismatch: the objective, priors included, one step before the end over what it was at the
            start; infinite where there is no answer. All that an attacker has to judge a search by.
    """

    mismatch: float = inf


@dataclass(frozen=True)
class _Trial:
    """One trial of a search: what was seen, what is known of its labels, where it starts."""

    seen: Observation
    labels: Tensor | None
    start: Tensor | None = None


def search(
    stack: Stack,
    plan: Search,
    labels: Sequence[Tensor | None],
    names: frozenset[str] | None = None,
    starts: Sequence[Tensor] | None = None,
) -> list[Found]:
    """Reconstruct every trial of a stack.

    Args:
        stack: the observations; `batch_size`, and of text `length`, must be granted.
        plan: what to do.
        labels: int64 a trial, (batch,) of images and (words,) of text; None where the plan does
            not read them.
        names: the parameters to match; by default all that the updates hold.
        starts: images a trial, (batch, channel, size, size) of pixels in [0, 1], from which the
            search starts; by default from normal draws. Only where labels are not searched.

    Returns:
        One answer a trial, in order. A trial that diverged, or whose update is not finite, says so
        in `failure`.
    """
    stack.model.eval().requires_grad_(False)  # the harness gives the model its modes back
    sought = unknowns(stack[0], plan)
    sent = frozenset(stack[0].update)
    matched = frozenset() if plan.objective is None else sent if names is None else names & sent
    tracer = Tracer(sought.victim.network, matched, sought.reads)
    answers: dict[int, Found] = {}
    due: dict[int, _Trial] = {}
    for place, (seen, known) in enumerate(zip(stack, labels, strict=True)):
        failure = None
        if plan.objective is not None and not matched:
            failure = "the update holds nothing to match"
        elif not all(bool(seen.update[name].isfinite().all()) for name in matched):
            failure = "the update is not finite"
        elif known is None and plan.reads_labels:
            failure = "the labels could not be inferred"
        if failure is None:
            due[place] = _Trial(seen, known, None if starts is None else starts[place])
        else:
            answers[place] = Found(**vars(replace(sought.blank(), failure=failure)))
    places = list(due)
    while places:
        fits = _count_fitting(due[places[0]], plan, tracer, sought) if len(places) > 1 else 1
        chunk, places = places[:fits], places[fits:]
        found = _advance([due[place] for place in chunk], plan, tracer, sought)
        answers |= zip(chunk, found, strict=True)
    return [answers[place] for place in range(len(stack))]


def _advance(
    trials: Sequence[_Trial], plan: Search, tracer: Tracer, sought: Unknowns
) -> list[Found]:
    """Run the searches of some trials together, from start to end."""
    owners = [trial for trial in trials for _ in range(plan.restarts)]
    problem = _make_problem(owners, plan, tracer, sought)
    values = torch.stack([_begin(owner, plan, sought) for owner in owners])
    values = values.to(next(tracer.network.parameters()))
    rows = Rows(values)
    granted = trials[0].seen.budget.gradient_evaluations // plan.restarts
    optimiser = plan.optimiser
    if plan.objective is not None and granted:
        optimiser = optimiser.within(granted)
    state = optimiser.start(values)
    steps = plan.steps if plan.objective is None else min(plan.steps, granted)
    for step in range(steps):
        problem.progress = step / steps
        _renew_consensus(problem, values, rows.running // plan.restarts, step)
        rate = values.new_full((len(values),), plan.rate * plan.schedule(problem.progress))
        moved, losses, stopped = state.step(values, problem.evaluate, rate)
        if step == 0:
            rows.first = losses.cpu()
            rows.apart[:, 0] = problem.apart.cpu()
        values = _perturb(moved, problem, [owners[i] for i in rows.running.tolist()], rate)
        broken = ~(losses.isfinite() & values.isfinite().all(1))
        spent_up = problem.spent + optimiser.most > granted
        ending = broken | stopped | (spent_up if plan.objective is not None else broken)
        if step == steps - 1:
            ending = torch.ones_like(ending)
        if bool(ending.any()):
            reason = f"diverged at step {step + 1} of {steps}"
            kept = rows.end(
                *(ending, broken, reason),
                values=values,
                losses=losses,
                spent=problem.spent,
                apart=problem.apart,
            )
            if not len(kept):
                break
            values, problem = values[kept], problem.keep(kept)
            state.keep(kept)
    return [_choose_answer(problem, rows, i, trial) for i, trial in enumerate(trials)]


def _make_problem(
    owners: Sequence[_Trial], plan: Search, tracer: Tracer, sought: Unknowns
) -> Problem:
    """Return the problem of rows that belong to these trials."""
    device = next(tracer.network.parameters()).device
    given = [owner.labels for owner in owners if owner.labels is not None]
    return Problem(
        plan,
        sought,
        tracer,
        Target([owner.seen.update for owner in owners], sorted(tracer.wanted)),
        torch.stack(given).to(device) if plan.reads_labels else None,
        torch.zeros(len(owners), dtype=torch.int64, device=device),
        torch.zeros(len(owners), dtype=torch.float64, device=device),
    )


def _count_fitting(trial: _Trial, plan: Search, tracer: Tracer, sought: Unknowns) -> int:
    """Return how many trials advance together in the memory one trial is granted.

    What the graph of one row saves is counted by running it once, at zero, with every term: those
    that join later must fit, too.
    """
    terms = tuple(replace(term, schedule=Constant()) for term in plan.terms)
    problem = _make_problem([trial], replace(plan, terms=terms), tracer, sought)
    saved: dict[int, int] = {}

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    known = tracer.network.state_dict().values()
    weights = {tensor.untyped_storage().data_ptr() for tensor in known}
    parameter = next(tracer.network.parameters())
    values = parameter.new_zeros(1, sought.numel, requires_grad=True)
    with saved_tensors_hooks(count, lambda tensor: tensor):
        losses = problem.losses(values, torch.zeros(1, dtype=torch.int64, device=values.device))
    del losses
    size = values.nbytes + sum(nbytes for place, nbytes in saved.items() if place not in weights)
    return max(1, int(trial.seen.budget.memory_bytes / (_SPARE * size * plan.restarts)))


def _renew_consensus(problem: Problem, values: Tensor, owners: Tensor, step: int) -> None:
    """Renew the consensus of each trial's restarts, where it is due."""
    plan = problem.plan.registration
    if plan is None or problem.progress < plan.after or step % plan.every:
        return
    images = problem.unknowns.inputs(values)
    problem.consensus = torch.empty_like(images)
    for owner in sorted(set(owners.tolist())):
        mine = (owners == owner).to(images.device)
        agreed = [register(images[mine, i], plan.align) for i in range(images.shape[1])]
        problem.consensus[mine] = torch.stack(agreed)


def _perturb(values: Tensor, problem: Problem, owners: Sequence[_Trial], rate: Tensor) -> Tensor:
    """Return values after a step's noise, with inputs kept in bounds where the plan says so."""
    plan, sought = problem.plan, problem.unknowns
    if plan.noise:
        draws = torch.stack([_draw_normal(owner, sought.numel) for owner in owners])
        values = values + plan.noise * rate[:, None] * draws.to(values)
    if plan.clamp:
        values = values.clone()
        sought.inputs(values).clamp_(*sought.bounds)
    return values


def _choose_answer(problem: Problem, rows: Rows, index: int, trial: _Trial) -> Found:
    """Return the restart with the least loss; the truth has no say."""
    restarts = problem.plan.restarts
    mine = slice(index * restarts, (index + 1) * restarts)
    chosen = index * restarts + int(rows.losses[mine].argmin())
    first, last = rows.apart[chosen].tolist()
    answer = replace(
        problem.unknowns.answer(rows.values[chosen], trial.labels),
        gradient_evaluations=int(rows.spent[mine].sum()),
        failure=rows.broken.get(chosen),
        residual=max(last, 0.0) / first if first > 0 and isfinite(last) else None,
    )
    return Found(**vars(answer), mismatch=float(rows.losses[chosen] / rows.first[chosen]))


def _begin(trial: _Trial, plan: Search, sought: Unknowns) -> Tensor:
    if trial.start is not None:
        return sought.values(trial.start)
    return plan.start * _draw_normal(trial, sought.numel)


def _draw_normal(trial: _Trial, numel: int) -> Tensor:
    return torch.randn(numel, generator=trial.seen.generator)
