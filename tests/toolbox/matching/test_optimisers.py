from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmark.toolbox.matching.optimisers import LBFGS, Adam

ADAMS = [
    Adam(),
    Adam(betas=(0.8, 0.99), eps=1e-3),
    Adam(weight_decay=0.1),
    Adam(weight_decay=0.1, decoupled=True),
    Adam(sign=True),
    Adam(sign=True, weight_decay=0.1),
]


def uniform(seed, *shape):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Quadratic:
    """(x - c) A (x - c) / 2, one A and c a trial; convex, conditioned below 100."""

    def __init__(self, trials, numel, seed=0):
        self.centres = uniform(seed, trials, numel)
        root = uniform(seed + 1, trials, numel, numel) - 0.5
        self.matrices = root @ root.mT + 0.1 * torch.eye(numel, dtype=torch.float64)

    def __call__(self, values, rows):
        away = values - self.centres[rows]
        gradients = (self.matrices[rows] * away[:, None]).sum(2)
        return (away * gradients).sum(1) / 2, gradients


def rosenbrock(values, rows):
    x, y = values[:, ::2], values[:, 1::2]
    losses = ((1 - x) ** 2 + 100 * (y - x**2) ** 2).sum(1)
    by_x = -2 * (1 - x) - 400 * x * (y - x**2)
    return losses, torch.stack([by_x, 200 * (y - x**2)], 2).flatten(1)


@dataclass
class Spied:
    """Counts the evaluations of each trial, and keeps the rows of every call."""

    evaluate: object
    calls: list = field(default_factory=list)

    def __call__(self, values, rows):
        assert rows.dtype == torch.int64
        assert len(values) == len(rows)
        self.calls.append(rows.tolist())
        return self.evaluate(values, rows)

    def count(self, trial):
        return sum(rows.count(trial) for rows in self.calls)


def run(optimiser, evaluate, values, steps, rate=0.1):
    """Return the iterates (steps, trials, numel) and the last step's stopped (trials,)."""
    state, path, rate = optimiser.start(values), [], values.new_full((len(values),), rate)
    for _ in range(steps):
        values, _, stopped = state.step(values, evaluate, rate)
        path.append(values)
    return torch.stack(path), stopped


def trial(evaluate, row):
    return lambda values, rows: evaluate(values, rows + row)


def run_torch(optimiser, evaluate, values, row, steps):
    """Return the iterates (steps, numel) of one trial under an optimiser of torch."""
    values = torch.nn.Parameter(values[row].clone())
    made, path = optimiser([values]), []

    def closure():
        losses, gradients = evaluate(values.detach()[None], torch.tensor([row]))
        values.grad = gradients[0]
        return losses[0]

    for _ in range(steps):
        made.step(closure)
        path.append(values.detach().clone())
    return torch.stack(path)


def torch_s_adam(adam, rate):
    made = torch.optim.AdamW if adam.decoupled else torch.optim.Adam
    return lambda values: made(
        values, lr=rate, betas=adam.betas, eps=adam.eps, weight_decay=adam.weight_decay
    )


def signed(evaluate):
    def signs(values, rows):
        losses, gradients = evaluate(values, rows)
        return losses, gradients.sign()

    return signs


@settings(deadline=None, max_examples=10)
@given(trials=st.integers(1, 5), numel=st.integers(1, 30), seed=st.integers(0, 100))
@pytest.mark.parametrize("adam", ADAMS, ids=repr)
def test_adam_takes_torch_s_steps_on_each_trial_alone(adam, trials, numel, seed):
    evaluate, start = Quadratic(trials, numel, seed), 3 * uniform(seed + 2, trials, numel)
    rates = 0.01 + 0.1 * uniform(seed + 3, trials)
    state, values, path = adam.start(start), start, []
    for _ in range(20):
        values, losses, stopped = state.step(values, evaluate, rates)
        path.append(values)
    assert torch.equal(losses, evaluate(path[-2], torch.arange(trials))[0])
    assert not stopped.any()
    for row in range(trials):
        alone = signed(evaluate) if adam.sign else evaluate
        wanted = run_torch(torch_s_adam(adam, float(rates[row])), alone, start, row, 20)
        torch.testing.assert_close(torch.stack(path)[:, row], wanted, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("adam", ADAMS, ids=repr)
def test_adam_gives_a_trial_the_same_bits_alone_and_in_a_stack(adam):
    evaluate, start = Quadratic(32, 31), 3 * uniform(5, 32, 31)
    together, _ = run(adam, evaluate, start, 20)
    for row in range(32):
        alone, _ = run(adam, trial(evaluate, row), start[row : row + 1], 20)
        assert torch.equal(alone[:, 0], together[:, row])


@pytest.mark.parametrize("search", [0, 20])
@pytest.mark.parametrize("name", ["quadratic", "rosenbrock"])
def test_lbfgs_gives_a_trial_the_same_iterates_alone_and_in_a_stack(name, search):
    evaluate = Quadratic(32, 12) if name == "quadratic" else rosenbrock
    start, optimiser = 4 * uniform(5, 32, 12) - 2, LBFGS(line_search=search)
    together, _ = run(optimiser, evaluate, start, 20, rate=0.5)
    for row in range(32):
        alone, _ = run(optimiser, trial(evaluate, row), start[row : row + 1], 20, rate=0.5)
        torch.testing.assert_close(alone[:, 0], together[:, row], rtol=1e-8, atol=1e-8)
    assert (together[-1] - start).abs().amax(1).min() > 1e-3


@pytest.mark.parametrize("optimiser", [*ADAMS, LBFGS(), LBFGS(line_search=0)], ids=repr)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_trial_that_is_not_finite_leaves_its_neighbours_alone(optimiser, bad, where):
    evaluate, start, calls = Quadratic(4, 12), 3 * uniform(5, 4, 12), []

    def spoilt(values, rows):
        losses, gradients = evaluate(values, rows)
        calls.append(rows)
        if len(calls) > 3:  # from the fourth evaluation on, in a search or out of it
            if where == "loss":
                losses[rows == 1] = bad
            else:
                gradients[(rows == 1).nonzero(), 5] = bad
        return losses, gradients

    whole, _ = run(optimiser, evaluate, start, 20)
    path, _ = run(optimiser, spoilt, start, 20)
    others = [0, 2, 3]
    exact = isinstance(optimiser, Adam)
    torch.testing.assert_close(
        path[:, others], whole[:, others], rtol=0 if exact else 1e-12, atol=0 if exact else 1e-15
    )
    if where == "gradient":
        moves = path[5:, 1] - path[4:-1, 1]
        assert ((moves == 0) | moves.isnan()).any(1).all()
    if isinstance(optimiser, LBFGS):
        assert torch.equal(path[5, 1], path[-1, 1])
        assert path[:, 1].isfinite().all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_signed_adam_does_not_hide_a_gradient_that_is_not_finite(bad):
    def spoilt(values, rows):
        return values.sum(1), torch.tensor([[1.0, bad, -2.0]])

    path, _ = run(Adam(sign=True), spoilt, torch.zeros(1, 3), 1)
    assert path[0, 0].isnan().tolist() == [False, True, False]


def test_lbfgs_without_a_search_takes_torch_s_steps():
    evaluate, start = Quadratic(3, 12), 3 * uniform(5, 3, 12)
    path, _ = run(LBFGS(history=4, line_search=0), evaluate, start, 20, rate=0.3)
    for row in range(3):

        def made(values):
            return torch.optim.LBFGS(values, lr=0.3, max_iter=1, history_size=4)

        wanted = run_torch(made, evaluate, start, row, 20)
        torch.testing.assert_close(path[:, row], wanted, rtol=1e-10, atol=1e-12)


def test_lbfgs_finds_the_minimiser_that_torch_finds():
    start = torch.tensor([[-1.2, 1.0], [3.0, -4.0], [0.0, 5.0]], dtype=torch.float64)
    path, stopped = run(LBFGS(tolerance=1e-9), rosenbrock, start, 80, rate=1)
    assert stopped.all()
    for row in range(3):

        def made(values):
            return torch.optim.LBFGS(
                values, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
            )

        theirs = run_torch(made, rosenbrock, start, row, 10)[-1]
        torch.testing.assert_close(theirs, torch.ones(2, dtype=torch.float64))
        torch.testing.assert_close(path[-1, row], theirs, rtol=0, atol=1e-8)


def test_lbfgs_evaluates_only_trials_that_still_search():
    scales = torch.tensor([1.0, 1e4], dtype=torch.float64)

    def evaluate(values, rows):  # at 1, the first step of length 1 lands trial 0 on its minimum
        steep = scales[rows, None]
        return (steep * values**4).sum(1) / 4, steep * values**3

    spied = Spied(evaluate)
    values = torch.tensor([[1.0], [0.3]], dtype=torch.float64)
    state = LBFGS().start(values)
    values, losses, stopped = state.step(values, spied, torch.ones(2))
    assert losses.tolist() == [0.25, pytest.approx(20.25)]
    assert values[0] == 0
    assert spied.calls[:2] == [[0, 1], [0, 1]]
    assert len(spied.calls) > 2
    assert all(rows == [1] for rows in spied.calls[2:])
    assert not stopped.any()
    before = len(spied.calls)
    _, losses, stopped = state.step(values, spied, torch.ones(2))
    assert torch.equal(losses, evaluate(values, torch.arange(2))[0])
    assert stopped.tolist() == [True, False]
    assert spied.calls[before:]
    assert all(rows == [1] for rows in spied.calls[before:])


def test_lbfgs_evaluates_again_only_trials_whose_values_were_changed_between_steps():
    evaluate, values = Quadratic(3, 12), 3 * uniform(5, 3, 12)
    state, spied = LBFGS().start(values), Spied(evaluate)
    values, _, _ = state.step(values, spied, torch.ones(3))
    values[1].clamp_(max=0.5)  # in place, as a loop that projects would
    before = len(spied.calls)
    _, losses, _ = state.step(values.clone(), spied, torch.ones(3))
    assert spied.calls[before] == [1]
    torch.testing.assert_close(losses, evaluate(values, torch.arange(3))[0])


def test_lbfgs_goes_the_same_way_where_the_loop_writes_into_one_buffer():
    evaluate, buffer = Quadratic(3, 12), 3 * uniform(5, 3, 12)
    path, _ = run(LBFGS(), evaluate, buffer, 6)
    state = LBFGS().start(buffer)
    for step in range(6):
        buffer.copy_(state.step(buffer, evaluate, buffer.new_full((3,), 0.1))[0])
        torch.testing.assert_close(buffer, path[step])


def test_lbfgs_spends_no_more_than_its_evaluations_and_the_trial_stays_and_stops():
    def uphill(values, rows):  # the gradient lies: no step along it lowers the loss
        return (values**2).sum(1), -2 * values

    spied, start = Spied(uphill), torch.ones(2, 3)
    path, stopped = run(LBFGS(line_search=7), spied, start, 1)
    assert spied.count(0) == LBFGS(line_search=7).most == 1 + 7
    assert torch.equal(path[0], start)
    assert stopped.all()


def test_lbfgs_takes_the_best_step_of_a_search_that_ran_out():
    spied = Spied(lambda values, rows: (-values.sum(1), -torch.ones_like(values)))  # no minimum
    path, stopped = run(LBFGS(line_search=4), spied, torch.zeros(1, 1), 1, rate=1)
    assert path.item() == 8
    assert not stopped.any()
    assert spied.count(0) == 1 + 4


@pytest.mark.parametrize("loss", [torch.nan, -torch.inf, 0])
@pytest.mark.parametrize("slope", [torch.nan, torch.inf])
def test_lbfgs_steps_back_from_where_loss_or_gradient_is_not_finite(loss, slope):
    def evaluate(values, rows):
        beyond = values < 0.2
        losses = torch.where(beyond, loss, values**2 / 2).sum(1)
        return losses, torch.where(beyond & (loss == 0), slope, values)

    path, stopped = run(LBFGS(), evaluate, torch.ones(1, 1), 1, rate=0.9)
    assert path.item() == pytest.approx(0.55)
    assert not stopped


def test_lbfgs_stops_where_a_lower_loss_is_lost_in_rounding():
    def evaluate(values, rows):
        return torch.ones(len(values)), torch.full_like(values, 1e-12)

    path, stopped = run(LBFGS(), evaluate, torch.ones(1, 1), 1)
    assert path.item() == 1
    assert stopped


@pytest.mark.parametrize("search", [0, 20])
def test_lbfgs_stops_a_trial_whose_gradient_is_within_tolerance(search):
    evaluate, start = Quadratic(2, 12), 3 * uniform(5, 2, 12)
    start[0] = evaluate.centres[0] + 1e-6
    path, stopped = run(LBFGS(line_search=search, tolerance=1e-3), evaluate, start, 1)
    assert stopped.tolist() == [True, False]
    assert torch.equal(path[0, 0], start[0])


def test_lbfgs_waits_where_the_rate_is_0():
    evaluate, start = Quadratic(2, 12), 3 * uniform(5, 2, 12)
    path, stopped = run(LBFGS(), evaluate, start, 1, rate=0)
    assert torch.equal(path[0], start)
    assert not stopped.any()


def test_lbfgs_leaves_a_pair_of_negative_curvature_out_trial_by_trial():
    def evaluate(values, rows):  # trial 0 is concave, trial 1 is convex
        bend = torch.tensor([-1.0, 1.0], dtype=values.dtype)[rows, None]
        return (bend * values**2).sum(1) / 2, bend * values

    start = torch.full((2, 1), 0.1, dtype=torch.float64)
    path, _ = run(LBFGS(line_search=0), evaluate, start, 3, rate=0.5)
    assert path[:, 1, 0].tolist() == pytest.approx([0.05, 0.025, 0.0125])  # Newton, halved
    assert path[:, 0, 0].tolist() == pytest.approx([0.15, 0.225, 0.3375])  # the gradient's steps


@pytest.mark.parametrize("optimiser", [*ADAMS, LBFGS(), LBFGS(line_search=0)], ids=repr)
@pytest.mark.parametrize("rows", [[2, 0], [False, True, False, True]])
@pytest.mark.parametrize("begun", [0, 3])
def test_kept_trials_go_on_as_if_none_had_left(optimiser, rows, begun):
    evaluate, values, rows = Quadratic(4, 12), 3 * uniform(5, 4, 12), torch.tensor(rows)
    kept = torch.arange(4)[rows]
    whole, _ = run(optimiser, evaluate, values, begun + 4)
    state = optimiser.start(values)
    for _ in range(begun):
        values, _, _ = state.step(values, evaluate, values.new_full((4,), 0.1))
    state.keep(rows)
    values = values[rows]
    for step in range(4):
        values, _, _ = state.step(
            values, lambda values, rows: evaluate(values, kept[rows]), values.new_full((2,), 0.1)
        )
        torch.testing.assert_close(values, whole[begun + step, kept], rtol=1e-10, atol=1e-12)


def test_lbfgs_does_not_evaluate_kept_trials_again():
    evaluate, start = Quadratic(3, 12), 3 * uniform(5, 3, 12)
    state, spied, rows = LBFGS().start(start), Spied(evaluate), torch.tensor([0, 2])
    values, _, _ = state.step(start, spied, start.new_ones(3))
    before = len(spied.calls)
    state.keep(rows)
    _, losses, _ = state.step(values[rows], spied, start.new_zeros(2))  # rate 0: no search
    assert len(spied.calls) == before
    torch.testing.assert_close(losses, evaluate(values, torch.arange(3))[0][rows])


@pytest.mark.parametrize("optimiser", [*ADAMS, LBFGS(), LBFGS(line_search=0)], ids=repr)
def test_step_writes_neither_to_the_values_nor_to_what_was_evaluated(optimiser):
    evaluate, given = Quadratic(2, 12), []

    def remembered(values, rows):
        given.extend((tensor, tensor.clone()) for tensor in (values, *evaluate(values, rows)))
        return given[-2][0], given[-1][0]

    run(optimiser, remembered, 3 * uniform(5, 2, 12), 6)
    assert all(torch.equal(tensor, copy) for tensor, copy in given)


@pytest.mark.parametrize("optimiser", [Adam(), LBFGS(), LBFGS(line_search=0)], ids=repr)
def test_values_stay_float32_where_losses_and_rates_are_float64(optimiser):
    def evaluate(values, rows):
        return (values.double() ** 2).sum(1), 2 * values

    start = torch.ones(2, 3)
    state = optimiser.start(start)
    values, losses, _ = state.step(start, evaluate, torch.full((2,), 0.1, dtype=torch.float64))
    values, losses, _ = state.step(values, evaluate, torch.full((2,), 0.1, dtype=torch.float64))
    assert values.dtype == torch.float32
    assert losses.dtype == torch.float64
    assert (losses < 3).all()


def test_settings_that_cannot_work_are_refused_in_one_line():
    with pytest.raises(ValueError, match=r"betas are \(0.9, 1.0\); both must lie in \[0, 1\)"):
        Adam(betas=(0.9, 1.0))
    with pytest.raises(ValueError, match="history is 0; it must be 1 or more"):
        LBFGS(history=0)
