import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmark.toolbox.closedform import least_squares, row_space, solve_gradient
from benchmark.toolbox.closedform.solve import clear_equations, likely, rounding_off

sizes, seeds = st.integers(1, 30), st.integers(0, 2**32)


def normal(*shape, seed):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def low_rank(rows, columns, rank, seed, smallest=1.0):
    """Return a matrix with singular values from 1 down to `smallest`, and its row space."""
    left = torch.linalg.qr(normal(rows, rank, seed=seed))[0]
    right = torch.linalg.qr(normal(columns, rank, seed=seed + 1))[0]
    values = torch.logspace(0, float(np.log10(smallest)), rank, dtype=torch.float64)
    return left * values @ right.T, right


def projector(basis):
    return basis @ basis.T


@given(sizes, sizes, st.integers(1, 5), seeds)
def test_least_squares_is_numpy_s(rows, columns, answers, seed):
    matrix, right = normal(rows, columns, seed=seed), normal(rows, answers, seed=seed + 1)
    wanted = np.linalg.pinv(matrix.numpy()) @ right.numpy()
    np.testing.assert_allclose(least_squares(matrix, right), wanted, rtol=1e-6, atol=1e-8)


@given(sizes, sizes, st.data(), seeds)
def test_least_squares_of_a_deficient_matrix_is_the_shortest(rows, columns, data, seed):
    rank = data.draw(st.integers(1, min(rows, columns)))
    matrix, basis = low_rank(rows, columns, rank, seed)
    truth = normal(columns, 2, seed=seed + 2)
    solution = least_squares(matrix, matrix @ truth)
    torch.testing.assert_close(solution, projector(basis) @ truth)


def test_least_squares_of_float32_is_solved_in_float64():
    matrix = torch.tensor([[1.0, 0.0], [0.0, 1e-5], [0.0, 0.0]])
    solution = least_squares(matrix, matrix)
    assert solution.dtype == torch.float64
    torch.testing.assert_close(solution, torch.eye(2, dtype=torch.float64))


@given(st.integers(1, 12), st.integers(0, 60), st.integers(0, 60), seeds)
def test_row_space_is_that_of_the_full_decomposition(rank, more_rows, more_columns, seed):
    rows, columns = rank + more_rows, rank + more_columns
    matrix, _ = low_rank(rows, columns, rank, seed, smallest=1e-3)
    wanted = torch.linalg.svd(matrix, full_matrices=False)[2][:rank].T
    basis = row_space(matrix, rank, torch.Generator().manual_seed(seed))
    assert basis.shape == (columns, rank)
    torch.testing.assert_close(basis.T @ basis, torch.eye(rank, dtype=torch.float64))
    torch.testing.assert_close(projector(basis), projector(wanted), rtol=0, atol=1e-9)


@given(st.integers(2, 12), st.sampled_from([(60, 50), (200, 120)]), seeds)
def test_true_directions_are_kept_however_small_where_no_gap_shows(rank, shape, seed):
    matrix, wanted = low_rank(*shape, rank, seed, smallest=1e-8)
    basis = row_space(matrix, rank, torch.Generator().manual_seed(seed))
    assert basis.shape[1] == rank
    torch.testing.assert_close(projector(basis), projector(wanted), rtol=0, atol=1e-5)


@given(
    st.integers(1, 8), st.integers(1, 4), st.sampled_from([(60, 50), (50, 90), (300, 150)]), seeds
)
def test_rank_is_lowered_to_what_stands_clear_of_the_noise(rank, more, shape, seed):
    matrix, wanted = low_rank(*shape, rank, seed, smallest=1e-2)
    noise = 1e-7 * normal(*shape, seed=seed + 2)
    basis = row_space(matrix + noise, rank + more, torch.Generator().manual_seed(seed))
    assert basis.shape[1] == rank
    torch.testing.assert_close(projector(basis), projector(wanted), rtol=0, atol=1e-3)


def test_sketch_is_as_near_as_the_full_decomposition_where_the_tail_is_high(draw):
    matrix, _ = low_rank(400, 200, 8, 0, smallest=1e-2)
    matrix = matrix + 4e-5 * normal(400, 200, seed=2)  # a tail at a seventh of the smallest value
    full = torch.linalg.svd(matrix, full_matrices=False)[2][:8].T
    sketched = row_space(matrix, 8, draw)
    assert sketched.shape == (200, 8)
    torch.testing.assert_close(projector(sketched), projector(full), rtol=0, atol=1e-3)


@given(st.integers(1, 8), st.integers(1, 8), st.integers(0, 4), seeds)
def test_rank_above_the_matrix_is_its_whole_row_space(rows, columns, more, seed):
    matrix = normal(rows, columns, seed=seed)
    basis = row_space(matrix, max(rows, columns) + more, torch.Generator())
    assert basis.shape == (columns, columns)
    assert torch.equal(basis, torch.eye(columns, dtype=torch.float64))


def test_wide_matrix_of_full_rank_keeps_all_its_rows(draw):
    matrix = normal(4, 9, seed=0)
    basis = row_space(matrix, 4, draw)
    assert basis.shape == (9, 4)
    torch.testing.assert_close(matrix @ projector(basis), matrix)


def test_row_space_draws_from_its_generator_alone():
    matrix = torch.randn(200, 100)
    first, again = (row_space(matrix, 5, torch.Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(first, again)


def test_zero_matrix_has_a_finite_row_space(draw):
    for shape in ((200, 100), (20, 10), (4, 9)):
        assert row_space(torch.zeros(shape), 4, draw).isfinite().all()


@given(st.integers(2, 12), st.integers(0, 12), st.integers(0, 12), seeds)
def test_nothing_is_read_out_of_the_rounding_of_a_gradient(rank, more_rows, more_columns, seed):
    shape = (rank + 1 + more_rows, rank + 1 + more_columns)
    matrix, basis = low_rank(*shape, rank, seed, smallest=1e-3)
    answer = basis @ normal(rank, 2, seed=seed + 2)
    for draw in range(3):
        rounding = 1e-7 * normal(*shape, seed=seed + 3 + draw).clamp(-1, 1) / max(shape) ** 0.5
        solution = solve_gradient(matrix + rounding, matrix @ answer)
        torch.testing.assert_close(solution, answer, rtol=1e-2, atol=1e-2)


@given(st.integers(2, 12), seeds)
def test_a_badly_conditioned_gradient_is_solved_in_all_directions(rank, seed):
    matrix, _ = low_rank(rank + 5, rank, rank, seed, smallest=1e-5)
    answer = normal(rank, 2, seed=seed + 2)
    solution = solve_gradient(matrix, matrix @ answer)
    torch.testing.assert_close(solution, answer, rtol=1e-6, atol=1e-6)


def test_rounding_moves_a_row_space_most_where_few_rows_hold_it(draw):
    matrix, basis = low_rank(300, 100, 5, 0, smallest=1e-3)
    rounded = matrix * (1 + 2**-24 * torch.randn(matrix.shape, generator=draw))
    span = row_space(rounded, 5, draw)
    inputs = basis @ torch.eye(5, dtype=torch.float64)
    off = (inputs - span @ (span.T @ inputs)).norm(dim=0)
    said = (rounding_off(rounded, span) @ (span.T @ inputs)).norm(dim=0)
    assert ((said > off) & (said < 10 * off)).all()
    assert not rounding_off(matrix + 1e-4 * normal(300, 100, seed=1), span).any()


def test_equations_of_the_size_of_their_rounding_are_left_out():
    equations, rounding = torch.diag(torch.tensor([1.0, 1e-6, 1e-3, 1e-6])), torch.eye(4)
    rounding = rounding.double() * torch.tensor([1e-8, 1e-6, 1e-8, 1e-9])
    clear = clear_equations(equations.double(), rounding)
    torch.testing.assert_close(projector(clear), torch.diag(torch.tensor([1.0, 0, 1, 1])).double())


def test_likely_rows_are_those_a_gradient_holds_most_of():
    metric = likely(torch.diag(torch.tensor([1.0, 0.1, 0.0], dtype=torch.float64)))
    assert torch.equal(metric, metric.T)
    assert metric.diagonal()[:2].tolist() == pytest.approx([1, 0.1**0.5])
    assert not likely(torch.zeros(3, 2, dtype=torch.float64)).isnan().any()
