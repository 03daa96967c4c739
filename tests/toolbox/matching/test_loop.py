"""Searches of whole stacks: what a trial gets alone, what it is charged, how it ends."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from benchmark.contract import Budget, Grant, ImageBatch, Stack, ThreatModel, Update
from benchmark.contract import observe as observed
from benchmark.federation import fedsgd
from benchmark.toolbox.matching import loop
from benchmark.toolbox.matching.ghost import Target
from benchmark.toolbox.matching.loop import search
from benchmark.toolbox.matching.objectives import Distance, SquaredDistance
from benchmark.toolbox.matching.optimisers import LBFGS, Adam
from benchmark.toolbox.matching.problem import Problem
from benchmark.toolbox.matching.schedules import After
from benchmark.toolbox.matching.search import Registration, Search, Term
from benchmark.toolbox.matching.trace import Tracer
from benchmark.toolbox.matching.unknowns import unknowns
from benchmark.toolbox.priors import PatchBoundary, register

START = {"position_std": 1.0, "class_token_std": 1.0}
APRIL = {"size": 8, "patch": 4, "width": 16, "depth": 1, "classes": 5, "initialisation": START}
MEAN, STD = 0.4, 0.25  # of every victim here
PIXELS = 64  # an image
GRANTED = ThreatModel(grants=frozenset({Grant.BATCH_SIZE, Grant.LABELS}))
MATCH = Search(SquaredDistance(), 20, rate=0.05)
NOTHING = Term(1.0, lambda images: 0 * images.square().sum((1, 2, 3, 4)))
"""A prior that draws nowhere: what moves then is noise or registration."""


def falling(progress):
    """Fall from 1 to 0 along a line: a schedule."""
    return 1 - progress


def squared_norm(images):
    """Draw normalised images to 0: a prior."""
    return images.square().sum((2, 3, 4)).mean(1)


@pytest.fixture(scope="module")
def victim(make_victim):
    return make_victim(**APRIL)


@pytest.fixture
def make_stack(victim):
    """Make the observations of some trials; each has its own images, labels and draws."""

    def make(
        trials=1, *, batch=1, evaluations=10**6, memory_bytes=2**30, first=0, seed=0, model=None
    ):
        model = victim if model is None else model
        model.requires_grad_(True)
        seen = []
        for trial in range(first, first + trials):
            draws = torch.Generator().manual_seed(trial)
            labels = torch.randint(5, (batch,), generator=draws)
            images = torch.rand(batch, 1, 8, 8, generator=draws)
            seen.append(
                observed(
                    GRANTED,
                    update=fedsgd(model, ImageBatch(images, labels)),
                    model=model,
                    budget=Budget(60, memory_bytes, evaluations),
                    generator=torch.Generator().manual_seed(1000 * seed + trial),
                    facts={Grant.BATCH_SIZE: batch, Grant.LABELS: labels},
                    defense={},
                )
            )
        return Stack(seen)

    return make


def with_update(seen, change):
    """Return an observation whose update is another."""
    return type(seen)(
        Update({name: change(name, tensor) for name, tensor in seen.update.items()}),
        seen.model,
        seen.knowledge,
        seen.budget,
        seen.generator,
    )


def run(stack, plan=MATCH, **options):
    return search(stack, plan, [seen.labels for seen in stack], **options)


def starts(trial, count, *, numel=PIXELS, seed=0):
    """Return the first draws of a trial, (count, numel)."""
    draws = torch.Generator().manual_seed(1000 * seed + trial)
    return torch.stack([torch.randn(numel, generator=draws) for _ in range(count)])


def pixels(values):
    return values.view(-1, 1, 8, 8) * STD + MEAN


def normalised(answer):
    return ((answer.images - MEAN) / STD).flatten()


def apart(found, wanted):
    return ((found - wanted).norm() / wanted.norm()).item()


@pytest.fixture
def traced(monkeypatch):
    """Count the trials that are traced, one gradient of the victim each."""
    counted, trace = [], Tracer.trace

    def count(self, images, loss):
        counted.append(len(images))
        return trace(self, images, loss)

    monkeypatch.setattr(Tracer, "trace", count)
    return counted


@pytest.fixture
def advanced(monkeypatch):
    """Keep how many trials advance together."""
    counted, advance = [], loop._advance

    def count(trials, *rest):
        counted.append(len(trials))
        return advance(trials, *rest)

    monkeypatch.setattr(loop, "_advance", count)
    return counted


# --- a stack and its trials


PLANS = {
    "adam": MATCH,
    "signed": Search(Distance(), 20, Adam(sign=True), rate=0.01, clamp=True, noise=0.1),
    "lbfgs": Search(SquaredDistance(), 20, LBFGS(), rate=1.0, start=0.3),
    "lbfgs without search": Search(SquaredDistance(), 20, LBFGS(line_search=0), start=0.3),
    "restarts": Search(SquaredDistance(), 20, restarts=2, labels="searched"),
}


def compare_with_trials_alone(make_stack, plan, limit, **options):
    together = run(make_stack(16, **options), plan)
    for trial in (0, 11):
        answer, (alone,) = together[trial], run(make_stack(first=trial, **options), plan)
        assert alone.failure is answer.failure is None
        assert apart(answer.images, alone.images) < limit
        assert answer.gradient_evaluations == alone.gradient_evaluations
        starting = plan.start * starts(trial, plan.restarts, numel=numel_of(plan))[:, :PIXELS]
        assert (normalised(answer) - starting).norm(dim=1).min() > 1e-4


def numel_of(plan):
    return PIXELS + (5 if plan.labels == "searched" else 0)


@pytest.mark.parametrize("name", PLANS)
def test_a_trial_of_16_gets_the_iterates_it_gets_alone(make_victim, make_stack, name):
    plan = replace(PLANS[name], steps=12 if "lbfgs" in name else 3)  # more than it remembers
    compare_with_trials_alone(make_stack, plan, 1e-9, model=make_victim(**APRIL).double())


@pytest.mark.parametrize("name", PLANS)
def test_a_trial_of_16_gets_the_same_iterates_to_float32_s_rounding(make_stack, name):
    plan = replace(PLANS[name], steps=5)  # for L-BFGS magnifies rounding from step to step
    compare_with_trials_alone(make_stack, plan, 1e-4)


def test_batches_of_a_stack_are_kept_apart(make_stack):
    together = run(make_stack(3, batch=4))
    for trial, answer in enumerate(together):
        assert answer.images.shape == (4, 1, 8, 8)
        (alone,) = run(make_stack(first=trial, batch=4))
        assert apart(answer.images, alone.images) < 1e-4


def test_search_finds_the_image(make_stack):
    draws = torch.Generator().manual_seed(0)  # as in make_stack
    torch.randint(5, (1,), generator=draws)
    image = torch.rand(1, 1, 8, 8, generator=draws)
    (answer,) = run(make_stack(), Search(SquaredDistance(), 60, LBFGS(), rate=1.0))
    assert answer.images.dtype == torch.float32
    assert (answer.images - image).square().mean() < 1e-3  # 0.13 at the start


def test_search_starts_from_the_images_it_is_given(make_stack):
    given = torch.rand(1, 1, 8, 8, generator=torch.Generator().manual_seed(5))
    (answer,) = run(make_stack(), Search(SquaredDistance(), 1, Adam(), rate=0.0), starts=[given])
    assert torch.allclose(answer.images, given, atol=1e-6)


def test_labels_that_are_searched_take_no_images_to_start_from(make_stack):
    searched = Search(SquaredDistance(), 1, labels="searched")
    with pytest.raises(ValueError, match="images say nothing of the labels"):
        run(make_stack(), searched, starts=[torch.zeros(1, 1, 8, 8)])


@pytest.mark.parametrize("optimiser", [Adam(), LBFGS()], ids=repr)
def test_a_huge_update_diverges_and_its_neighbours_do_not_notice(make_stack, optimiser):
    plan = Search(SquaredDistance(), 6, optimiser, rate=0.05)
    stack = make_stack(3)
    huge = with_update(stack[1], lambda _, tensor: 1e30 * tensor.sign())
    found = run(Stack([stack[0], huge, stack[2]]), plan)
    assert found[1].failure == "diverged at step 1 of 6"
    assert found[1].gradient_evaluations == 1
    for trial in (0, 2):
        (alone,) = run(make_stack(first=trial), plan)
        assert found[trial].failure is None
        assert (
            apart(found[trial].images, alone.images) < 3e-4
        )  # rounding, through six steps of line search


class NotANumber:
    """A squared distance that is NaN for trials of a large update, from some call on."""

    def __init__(self, call):
        self.left = call

    def __call__(self, trace, target):
        self.left -= 1
        losses = SquaredDistance()(trace, target)
        large = target.products(trace, "head.bias").seen > 1
        return torch.where(large & (self.left <= 0), torch.nan, losses)


def test_a_trial_that_diverges_on_its_way_leaves_the_stack_and_says_when(make_stack):
    plan, stack = replace(MATCH, noise=0.1), make_stack(3)
    large = with_update(stack[0], lambda _, tensor: 100 * tensor)
    objective = NotANumber(call=8)  # the first measures memory
    found = run(Stack([large, stack[1], stack[2]]), replace(plan, objective=objective))
    assert found[0].failure == "diverged at step 7 of 20"
    assert [answer.gradient_evaluations for answer in found] == [7, 20, 20]
    for trial in (1, 2):
        (alone,) = run(make_stack(first=trial), plan)
        assert apart(found[trial].images, alone.images) < 1e-4


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_an_update_that_is_not_finite_fails_alone(make_stack, bad):
    def spoilt(name, tensor):
        return tensor if name != "head.bias" else tensor.clone().fill_(bad)

    stack = make_stack(3)
    found = run(Stack([with_update(stack[0], spoilt), stack[1], stack[2]]))
    assert found[0].failure == "the update is not finite"
    assert found[0].gradient_evaluations == 0
    assert found[0].images.shape == (1, 1, 8, 8)
    assert [answer.failure for answer in found[1:]] == [None, None]
    assert apart(found[2].images, run(make_stack(first=2))[0].images) < 1e-4


def test_parameters_that_are_not_matched_may_hold_anything(make_stack):
    def spoilt(name, tensor):
        return tensor if name != "head.bias" else tensor.clone().fill_(torch.nan)

    (seen,) = make_stack()
    names = frozenset(seen.update) - {"head.bias"}
    (answer,) = run(Stack([with_update(seen, spoilt)]), names=names)
    (wanted,) = run(make_stack(), names=names)
    assert answer.failure is None
    assert torch.equal(answer.images, wanted.images)
    assert apart(wanted.images, run(make_stack())[0].images) > 1e-4


def test_a_withheld_parameter_is_not_matched(make_stack):
    (seen,) = make_stack()
    kept = seen.update.without("pos_embed", "head.bias")
    held = type(seen)(kept, seen.model, seen.knowledge, seen.budget, seen.generator)
    (answer,) = run(Stack([held]))
    names = frozenset(seen.update) - {"pos_embed", "head.bias"}
    assert torch.equal(answer.images, run(make_stack(), names=names)[0].images)


def test_a_search_without_anything_to_match_fails(make_stack, traced):
    (answer,) = run(make_stack(), names=frozenset({"norm.weight"}))  # no such parameter was sent
    assert answer.failure == "the update holds nothing to match"
    assert traced == []


def test_a_trial_without_labels_fails_alone(make_stack):
    stack = make_stack(2)
    found = search(stack, MATCH, [None, stack[1].labels])
    assert found[0].failure == "the labels could not be inferred"
    assert found[1].failure is None
    assert apart(found[1].images, run(make_stack(first=1))[0].images) < 1e-4


def test_mismatch_is_the_objective_before_the_end_over_that_at_the_start(make_stack, monkeypatch):
    losses, evaluate = [], Problem.evaluate

    def watch(problem, values, rows):
        found = evaluate(problem, values, rows)
        losses.append(found[0].tolist())
        return found

    monkeypatch.setattr(Problem, "evaluate", watch)
    found = run(make_stack(2))
    assert [answer.mismatch for answer in found] == [
        end / start for start, end in zip(losses[0], losses[-1], strict=True)
    ]
    assert 0 < found[0].mismatch < 1
    assert [answer.residual for answer in found] == [answer.mismatch for answer in found]


def test_residual_leaves_priors_and_schedules_out(make_stack):
    plain = run(make_stack())[0].residual
    constant = Term(5.0, lambda images: images.new_ones(len(images)))
    half = replace(MATCH, terms=(constant,), objective_schedule=lambda progress: 0.5)
    (answer,) = run(make_stack(), half)
    assert answer.mismatch > 0.5
    assert answer.residual == pytest.approx(plain, rel=1e-3)


def test_search_that_matches_nothing_has_no_residual(make_stack):
    term = Term(1.0, lambda images: images.square().flatten(1).sum(1))
    (answer,) = run(make_stack(), replace(MATCH, objective=None, terms=(term,)))
    assert answer.residual is None


def test_mismatch_without_an_answer_is_infinite(make_stack):
    (answer,) = run(make_stack(), names=frozenset({"norm.weight"}))
    assert answer.mismatch == float("inf")


# --- the budget


@pytest.mark.parametrize(
    ("evaluations", "restarts", "spent"),
    [(12, 1, 12), (1, 1, 1), (25, 1, 20), (25, 3, 24), (70, 3, 60)],
)
def test_adam_spends_its_steps_or_the_budget_shared_by_restarts(
    make_stack, traced, evaluations, restarts, spent
):
    plan = Search(SquaredDistance(), 20, restarts=restarts)
    (answer,) = run(make_stack(evaluations=evaluations), plan)
    assert answer.gradient_evaluations == spent
    assert sum(traced) == spent


@pytest.mark.parametrize("evaluations", [1, 2, 5, 21, 22, 45])
@pytest.mark.parametrize("restarts", [1, 2])
def test_lbfgs_never_spends_more_than_the_budget(make_stack, traced, evaluations, restarts):
    plan = Search(SquaredDistance(), 1000, LBFGS(), rate=1.0, restarts=restarts)
    (answer,) = run(make_stack(evaluations=evaluations * restarts), plan)
    assert answer.failure is None
    assert answer.gradient_evaluations == sum(traced)
    room = plan.optimiser.most * restarts  # another step might have cost as much
    assert evaluations * restarts - room < sum(traced) <= evaluations * restarts


def test_each_trial_of_a_stack_is_charged_for_itself(make_victim, make_stack):
    plan, model = Search(SquaredDistance(), 12, LBFGS(), rate=1.0), make_victim(**APRIL).double()
    found = [answer.gradient_evaluations for answer in run(make_stack(4, model=model), plan)]
    assert len(set(found)) > 1
    alone = [run(make_stack(first=i, model=model), plan)[0] for i in range(4)]
    assert found == [answer.gradient_evaluations for answer in alone]


def test_a_search_that_matches_nothing_takes_no_gradient(make_stack, traced):
    plan = Search(None, 5, terms=(Term(1.0, squared_norm),))
    found = search(make_stack(2, evaluations=0), plan, [None, None])
    assert traced == []
    for trial, answer in enumerate(found):
        assert answer.gradient_evaluations == 0
        assert answer.failure is None
        moved = (normalised(answer) - starts(trial, 1)[0]).abs()
        assert moved.max() == pytest.approx(5 * plan.rate, rel=0.1)  # as far as 5 steps of Adam go


def test_schedules_run_to_their_end_where_the_budget_ends_before_the_steps(make_stack):
    asked = []
    plan = Search(SquaredDistance(), 100, schedule=lambda progress: asked.append(progress) or 1.0)
    run(make_stack(evaluations=8), replace(plan, restarts=2))
    assert asked == [0.0, 0.25, 0.5, 0.75]


# --- one trial


def test_the_last_iterate_answers(make_stack):
    plan = Search(None, 1, rate=0.2, start=0.5, terms=(Term(1.0, squared_norm),))
    (answer,) = run(make_stack(), plan)
    start = 0.5 * starts(0, 1)
    torch.testing.assert_close(answer.images, pixels(start - 0.2 * start.sign()))


def test_the_last_iterate_answers_even_where_an_earlier_one_was_nearer(make_stack):
    near, far = (
        run(make_stack(), Search(None, n, rate=3.0, start=0.1, terms=(Term(1.0, squared_norm),)))
        for n in (0, 1)
    )
    assert normalised(far[0]).norm() > 10 * normalised(near[0]).norm()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_restart_with_the_least_loss_answers(make_stack, seed):
    (seen,) = stack = make_stack(seed=seed)
    start = starts(0, 4, seed=seed)
    losses = []
    for one in start:
        weights = {n: w.requires_grad_() for n, w in seen.model.weights().items()}
        found = torch.autograd.grad(
            functional.cross_entropy(seen.model.network(one.view(1, 1, 8, 8)), seen.labels),
            list(weights.values()),
        )
        away = [(g - seen.update[n]).square().sum() for n, g in zip(weights, found, strict=True)]
        losses.append(sum(away).item())
    (answer,) = run(stack, Search(SquaredDistance(), 3, rate=0.0, restarts=4))
    least = min(range(4), key=losses.__getitem__)
    torch.testing.assert_close(answer.images, pixels(start[least]))


def test_restarts_that_diverge_leave_the_answer_to_the_others(make_stack):
    def broken(images):  # by the sign of the first pixel
        first = images.flatten(1)[:, 0]
        return images.square().sum((1, 2, 3, 4)) + torch.where(first > 0, torch.nan, 0.0)

    plan = Search(None, 3, rate=0.0, restarts=8, terms=(Term(1.0, broken),))
    for trial in range(3):
        start = starts(trial, 8)
        norms = start.square().sum(1).masked_fill(start[:, 0] > 0, torch.inf)
        assert 0 < norms.isinf().sum() < 8
        (answer,) = run(make_stack(first=trial), plan)
        assert answer.failure is None
        torch.testing.assert_close(answer.images, pixels(start[norms.argmin()]))


def test_a_trial_whose_restarts_all_diverge_fails_and_is_charged_for_them(make_stack):
    stack = make_stack()
    huge = with_update(stack[0], lambda _, tensor: 1e30 * tensor.sign())
    (answer,) = run(Stack([huge]), Search(SquaredDistance(), 5, restarts=3))
    assert answer.failure == "diverged at step 1 of 5"
    assert answer.gradient_evaluations == 3


def test_clamped_pixels_stay_between_0_and_1(make_stack):
    plan = Search(SquaredDistance(), 10, rate=1.0, start=5.0, noise=0.5)
    (free,) = run(make_stack(), plan)
    (kept,) = run(make_stack(), replace(plan, clamp=True))
    assert free.images.min() < -0.1
    assert free.images.max() > 1.1
    assert kept.images.min() > -1e-6
    assert kept.images.max() < 1 + 1e-6
    assert kept.images.std() > 0.1


def test_noise_is_drawn_from_the_trial_s_own_generator(make_stack):
    plan = Search(None, 2, rate=0.5, noise=0.3, terms=(NOTHING,), schedule=falling)
    draws = [starts(trial, 3) for trial in range(2)]
    for answer, drawn in zip(run(make_stack(2), plan), draws, strict=True):
        wanted = drawn[0] + 0.3 * (0.5 * drawn[1] + 0.25 * drawn[2])
        torch.testing.assert_close(answer.images, pixels(wanted), rtol=1e-5, atol=1e-6)


def test_same_draws_make_the_same_bits_and_others_another_answer(make_stack):
    plan = Search(SquaredDistance(), 10, noise=0.1, restarts=2)
    first, again, other = (run(make_stack(2, seed=seed), plan) for seed in (0, 0, 1))
    for one, two, three in zip(first, again, other, strict=True):
        assert torch.equal(one.images, two.images)
        assert not torch.equal(one.images, three.images)


def test_searched_labels_are_found_and_named(make_stack):
    plan = Search(SquaredDistance(), 100, rate=0.1, labels="searched")
    stack = make_stack(4)
    for answer, seen in zip(search(stack, plan, [None] * 4), stack, strict=True):
        assert answer.labels.dtype == torch.int64
        assert torch.equal(answer.labels, seen.labels)
    assert len({int(seen.labels) for seen in stack}) > 1


def test_given_labels_are_named_as_they_were_given(make_stack):
    (seen,) = stack = make_stack()
    other = (seen.labels + 1) % 5
    (answer,) = search(stack, MATCH, [other])
    assert torch.equal(answer.labels, other)


# --- the loss


def problem_of(stack, plan):
    """Return the problem of one row for each trial of a stack."""
    seen = stack[0]
    labels = None if plan.labels == "searched" else torch.stack([s.labels for s in stack])
    names = sorted(seen.update)
    target = Target([s.update for s in stack], names)
    spent = torch.zeros(len(stack), dtype=torch.int64)
    tracer = Tracer(stack.model.network)
    none = spent.double()
    return Problem(plan, unknowns(seen, plan), tracer, target, labels, spent, none)


@pytest.mark.parametrize("labels", ["given", "searched"])
@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0], [1]])
def test_losses_and_derivatives_of_some_rows_agree_with_autograd(make_stack, labels, rows):
    stack = make_stack(3, batch=2)
    problem = problem_of(stack, Search(SquaredDistance(), 1, labels=labels))
    drawn = torch.stack([starts(i, 1, numel=problem.unknowns.numel)[0] for i in range(3)])[rows]
    losses, derivatives = problem.evaluate(drawn, torch.tensor(rows))
    assert problem.spent.tolist() == [int(row in rows) for row in range(3)]
    for place, row in enumerate(rows):
        seen, values = stack[row], drawn[place].clone().requires_grad_()
        weights = {n: w.requires_grad_() for n, w in seen.model.weights().items()}
        images = values[: 2 * PIXELS].view(2, 1, 8, 8)
        wanted = seen.labels if labels == "given" else values[2 * PIXELS :].view(2, 5).softmax(1)
        loss = functional.cross_entropy(seen.model.network(images), wanted)
        found = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        away = [(g - seen.update[n]).square().sum() for n, g in zip(weights, found, strict=True)]
        (derivative,) = torch.autograd.grad(sum(away), values)
        assert losses[place].item() == pytest.approx(sum(away).item(), rel=1e-4)
        assert apart(derivatives[place], derivative) < 1e-4


def test_terms_and_objective_are_weighed_by_their_schedules(make_stack):
    plan = Search(
        SquaredDistance(),
        10,
        objective_schedule=falling,
        terms=(Term(3.0, squared_norm, After(0.5)), Term(0.5, PatchBoundary(4))),
    )
    stack, values, rows = (
        make_stack(2),
        torch.cat([starts(i, 1) for i in range(2)]),
        torch.arange(2),
    )
    images = values.view(2, 1, 1, 8, 8)
    distance = problem_of(stack, Search(SquaredDistance(), 10)).losses(values, rows)
    for progress, matched, norm in ((0.0, 1.0, 0.0), (0.5, 0.5, 3.0)):
        problem = problem_of(stack, plan)
        problem.progress = progress
        wanted = matched * distance + norm * squared_norm(images) + 0.5 * PatchBoundary(4)(images)
        torch.testing.assert_close(problem.losses(values, rows), wanted, rtol=1e-6, atol=0)


# --- registration


def test_registration_draws_the_restarts_of_each_trial_together(make_stack):
    plan = Search(
        None,
        60,
        rate=0.1,
        schedule=falling,
        terms=(NOTHING,),
        restarts=3,
        registration=Registration(1.0, every=100, after=0.0),
    )
    for trial, answer in enumerate(run(make_stack(2), plan)):
        drawn = starts(trial, 3)
        consensus = register(drawn.view(3, 1, 8, 8)).flatten()
        away = (normalised(answer) - consensus).norm()
        assert away < 0.1 * (drawn - consensus).norm(dim=1).min()


@pytest.mark.parametrize(("after", "every", "images"), [(0.5, 10, 2), (0.0, 5, 8), (0.9, 10, 0)])
def test_registration_is_renewed_where_it_is_due(make_stack, monkeypatch, after, every, images):
    asked = []
    monkeypatch.setattr(
        loop, "register", lambda images, align: asked.append(align) or images.mean(0)
    )
    settings = Registration(1.0, every=every, after=after, align="flow")
    run(make_stack(batch=2), Search(None, 20, terms=(NOTHING,), restarts=2, registration=settings))
    assert asked == ["flow"] * images


@pytest.mark.parametrize("squared", [False, True])
def test_distance_to_the_consensus_is_part_of_the_loss(make_stack, squared):
    plan = Search(None, 1, registration=Registration(0.5, squared=squared))
    problem = problem_of(make_stack(3), plan)
    values = torch.cat([starts(i, 1) for i in range(3)])
    problem.consensus = torch.cat([starts(i, 1) for i in (4, 5, 6)]).view(3, 1, 1, 8, 8)
    rows = torch.tensor([2, 0])
    away = (values[rows] - problem.consensus.flatten(1)[rows]).norm(dim=1)
    wanted = 0.5 * (away.square() if squared else away).double()
    torch.testing.assert_close(problem.losses(values[rows], rows), wanted, rtol=1e-6, atol=0)


# --- memory


def sizes(make_stack, advanced, memory_bytes, plan):
    """Return how many of six trials advance together, and their answers."""
    advanced.clear()
    found = run(make_stack(6, memory_bytes=memory_bytes), plan)
    return list(advanced), found


def test_chunks_of_a_stack_give_the_same_answers(make_stack, advanced):
    plan = Search(SquaredDistance(), 4, restarts=2, noise=0.1, labels="searched")
    one, whole = sizes(make_stack, advanced, 2**30, plan)
    assert one == [6]
    for memory_bytes, wanted in ((1, [1] * 6), (enough(make_stack, plan, 4), [4, 2])):
        chunks, found = sizes(make_stack, advanced, memory_bytes, plan)
        assert chunks == wanted
        for answer, other in zip(found, whole, strict=True):
            assert apart(answer.images, other.images) < 1e-4
            assert torch.equal(answer.labels, other.labels)


def fitting(stack, plan):
    """Return how many trials fit into the memory of the first."""
    tracer = Tracer(stack.model.network, frozenset(stack[0].update))
    trial = loop._Trial(stack[0], stack[0].labels)
    return loop._count_fitting(trial, plan, tracer, unknowns(stack[0], plan))


def enough(make_stack, plan, trials):
    """Return bytes in which so many trials fit, and no more."""
    many = fitting(make_stack(memory_bytes=2**40), plan)
    return int(2**40 / many * (trials + 0.5))


def test_restarts_take_their_share_of_the_memory(make_stack):
    alone, shared = (
        fitting(make_stack(memory_bytes=2**30), Search(SquaredDistance(), 1, restarts=restarts))
        for restarts in (1, 4)
    )
    assert alone == pytest.approx(4 * shared, rel=0.02)


def test_memory_of_a_step_is_not_underestimated_by_what_the_graph_saves(make_victim, make_stack):
    model = make_victim(**{**APRIL, "width": 64, "depth": 2})
    many = fitting(make_stack(model=model, memory_bytes=2**30), MATCH)
    tokens, width, blocks = 5, 64, 2
    activations = 4 * blocks * tokens * (3 + 1 + 4 + 4) * width  # qkv, projection, MLP, GELU
    assert many < 2**30 / activations


def test_a_stack_whose_graph_saves_nothing_at_its_start_advances(make_stack):
    plan = Search(None, 2, terms=(Term(1.0, lambda images: images.sum((1, 2, 3, 4))),))
    assert [answer.failure for answer in run(make_stack(2), plan)] == [None, None]


def test_terms_that_join_later_take_their_memory_from_the_start(make_stack):
    def large(images):
        return images.flatten(1).repeat(1, 5000).sin().sum(1)

    now, later = (
        fitting(make_stack(), Search(SquaredDistance(), 10, terms=(Term(1.0, large, schedule),)))
        for schedule in (falling, After(0.5))
    )
    assert later == now


def test_victim_keeps_its_weights_and_hooks(make_stack):
    stack = make_stack(2)
    before = {name: weight.clone() for name, weight in stack.model.state_dict().items()}
    versions = stack.versions()
    run(stack)
    assert stack.versions() == versions
    assert all(torch.equal(w, before[n]) for n, w in stack.model.state_dict().items())
    assert not any(module._forward_hooks for module in stack.model.modules())
