"""One line for every answer that is none."""

import pytest
import torch

from benchmark.contract import Budget, Reconstruction, fault

IMAGES = torch.zeros(2, 1, 4, 4)
LABELS = torch.tensor([3, 0])


def said_of(answer, granted=800):
    budget = Budget(1, 1, granted)
    return fault(answer, shape=tuple(IMAGES.shape), classes=4, budget=budget)


@pytest.mark.parametrize(
    "answer",
    [
        Reconstruction(IMAGES),
        Reconstruction(IMAGES, 800, LABELS),
        Reconstruction(IMAGES, labels=LABELS.flip(0)),
    ],
)
def test_answer_in_order_has_no_fault(answer):
    assert said_of(answer) is None


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([3, 0], "returned labels of type list; wanted a tensor"),
        (LABELS.to_sparse(), "returned labels without values of their own; wanted a dense tensor"),
        (LABELS.to("meta"), "returned labels without values of their own; wanted a dense tensor"),
        (LABELS[:1], "returned labels (1,); wanted (2,)"),
        (LABELS[:0], "returned labels (0,); wanted (2,)"),
        (LABELS.int(), "returned labels of torch.int32; wanted torch.int64"),
        (LABELS + 1, "returned labels from 1 to 4; wanted 0 to 3"),
        (LABELS - 1, "returned labels from -1 to 2; wanted 0 to 3"),
    ],
)
def test_labels_that_are_none_are_said_in_one_line(labels, said):
    assert said_of(Reconstruction(IMAGES, labels=labels)) == said


@pytest.mark.parametrize(
    ("spent", "granted", "said"),
    [
        (900, 800, "spent 900 gradient evaluations; the budget is 800"),
        (1, 0, "spent 1 gradient evaluations; the budget is 0"),
        (-1, 800, "returned -1 gradient evaluations; wanted a whole number"),
        (True + 0.5, 800, "returned 1.5 gradient evaluations; wanted a whole number"),
    ],
)
def test_gradients_beyond_the_budget_or_beyond_counting_are_a_fault(spent, granted, said):
    assert said_of(Reconstruction(IMAGES, spent), granted) == said


@pytest.mark.parametrize("residual", [float("nan"), float("inf"), -0.5, 1, "small"])
def test_residual_is_a_finite_float_from_0_on(residual):
    wanted = f"returned the residual {residual!r}; wanted a finite float from 0 on"
    assert said_of(Reconstruction(IMAGES, residual=residual)) == wanted
    assert said_of(Reconstruction(IMAGES, residual=0.0)) is None


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        ("diverged at step 12 of 800", "diverged at step 12 of 800"),
        ("two\n  lines", "two lines"),
        ("x" * 999, "x" * 200),
        ("", "gave up without a reason"),
        (3, "gave up without a reason"),
    ],
)
def test_failure_is_said_in_the_attack_s_own_words_on_one_line(failure, said):
    assert said_of(Reconstruction(IMAGES, failure=failure)) == said


def test_failed_answer_is_not_looked_at():
    answer = Reconstruction(None, labels="none", failure="diverged")
    assert said_of(answer) == "diverged"
