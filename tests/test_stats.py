import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from benchmark import stats

SCALE = stats.Scale("psnr", higher=True)


def row(attack, trial, psnr, *, defense="none", status="completed", control=False, **fields):
    given = {"attack": attack, "trial": trial, "psnr": psnr, "defense": defense, "status": status}
    same = {"protocol": "p", "seed": 0, "seconds": None, "gradient_evaluations": None}
    return {**same, **given, "control": control, **fields}


def run(attack, *numbers, **given):
    return [row(attack, trial, number, **given) for trial, number in enumerate(numbers)]


def declined(attack, defense="none", status="not_applicable"):
    return row(attack, -1, None, defense=defense, status=status)


def judged(rows, scale=SCALE):
    frame = pd.DataFrame(rows).astype({"psnr": float, "seconds": float})
    frame = frame.astype({"gradient_evaluations": float})
    return stats.judged(stats.tidy(frame), {"p": scale})


def cells(rows, scale=SCALE):
    return stats.cells(judged(rows, scale), ["psnr"])


def estimate(*numbers):
    return stats.estimates(np.array(numbers, float), np.zeros(len(numbers), int))[0]


def test_estimate_of_known_numbers():
    score = estimate(*range(1, 13))
    assert score.mean == 6.5
    assert score.std == pytest.approx(13**0.5)
    assert 1 <= score.low < 6.5 < score.high <= 12
    assert score.n == 12


def test_under_ten_trials_there_is_no_interval():
    nine, ten = estimate(*range(9)), estimate(*range(10))
    assert (nine.low, nine.high) == (None, None)
    assert nine.std > 0
    assert ten.low < ten.high


def test_one_trial_has_no_deviation():
    assert estimate(7.0) == stats.Estimate(7.0, None, None, None, 1)


def test_equal_numbers_have_an_interval_of_no_width_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert estimate(*[0.1] * 48) == stats.Estimate(0.1, 0.0, 0.1, 0.1, 48)


@pytest.mark.parametrize("n", [10, 48, 200])
def test_interval_is_the_one_scipy_draws(n):
    sample = np.random.default_rng(n).gamma(2, 5, n)
    theirs = scipy_stats.bootstrap(
        (sample,), np.mean, method="percentile", n_resamples=20_000, rng=np.random.default_rng(0)
    ).confidence_interval
    ours, width = estimate(*sample), theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.06 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.06 * width)


def test_interval_of_many_normal_numbers_is_the_textbook_one():
    score = estimate(*[(i % 20 - 9.5) for i in range(2000)])
    assert score.high - score.low == pytest.approx(2 * 1.96 * score.std / 2000**0.5, rel=0.1)


def test_groups_of_any_size_are_estimated_as_if_alone():
    draws = np.random.default_rng(1)
    sizes = [1, 10, 3, 10, 12, 0, 10]
    samples = [draws.normal(size=size) for size in sizes]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    order = draws.permutation(len(groups))
    back = np.argsort(groups[order], kind="stable")
    shuffled = np.concatenate(samples)[order]
    found = stats.estimates(shuffled, groups[order])
    assert sorted(found) == [0, 1, 2, 3, 4, 6]
    for group, score in found.items():
        own = shuffled[back][groups == group]
        alone = estimate(*own)
        assert score.n == sizes[group]
        assert score.mean == pytest.approx(alone.mean)
        assert (score.low, score.high) == pytest.approx((alone.low, alone.high))


def test_not_a_number_is_left_out():
    assert estimate(1, float("nan"), 3).n == 2
    assert stats.estimates(np.array([np.nan]), np.zeros(1, int)) == {}


def test_failed_trials_count_in_the_mean_with_their_prior_score():
    rows = [*run("dlg", 30, 30), row("dlg", 2, 12, status="failed")]
    rows += [row("dlg", 3, 8, status="timed_out")]
    (cell,) = cells(rows)
    assert (cell.n, cell.failed, cell.scores["psnr"].mean) == (4, 2, 20.0)


def test_the_later_of_two_rows_of_one_trial_counts():
    assert judged([row("dlg", 0, 1), row("dlg", 0, 2)])["psnr"].tolist() == [2]


def test_a_verdict_is_dropped_where_the_cell_ran():
    found = judged([*run("dlg", 5), declined("dlg", status="unavailable")])
    assert found["status"].tolist() == ["completed"]


def test_a_cell_that_did_not_run_has_its_verdict_and_no_score():
    (cell,) = cells([declined("dlg")])
    assert (cell.verdict, cell.n, cell.scores, cell.lead) == ("not_applicable", 0, {}, None)


def test_cell_tells_its_median_seconds_its_most_gradients_and_its_ends():
    rows = [
        row("dlg", i, p, seconds=s, gradient_evaluations=g)
        for i, (p, s, g) in enumerate([(30, 1, 10), (10, 9, None), (20, 2, 50)])
    ]
    (cell,) = cells(rows)
    assert (cell.seconds, cell.gradients, cell.lowest, cell.highest) == (2, 50, 10, 30)


def test_lead_is_over_the_prior_of_the_same_trial_in_the_attackers_direction():
    rows = run("dlg", 30, 40) + run("prior_only", 10, 30, control=True)
    assert [cell.lead.mean for cell in cells(rows)] == [15, 0]
    lower = stats.Scale("psnr", higher=False)
    assert [cell.lead.mean for cell in cells(rows, lower)] == [-15, 0]


def test_there_is_no_lead_where_the_prior_did_not_run():
    rows = run("dlg", 30, 40) + run("prior_only", 10, 30, control=True, defense="mjp")
    assert [cell.lead is None for cell in cells(rows)] == [False, True]  # mjp stands first


def test_worst_case_leaves_controls_out_and_follows_the_direction():
    found = cells([*run("oracle", 160, control=True), *run("dlg", 20), *run("ig", 25)])
    assert stats.worst_case(found, "psnr", higher=True).attack == "ig"
    assert stats.worst_case(found, "psnr", higher=False).attack == "dlg"
    assert stats.worst_case(found[-1:], "psnr", higher=True) is None  # the oracle alone


@pytest.mark.parametrize(("higher", "share"), [(True, 0.5), (False, 0.75)])
def test_threshold_itself_is_a_breach_in_either_direction(higher, share):
    scale = stats.Scale("psnr", higher, ("psnr", higher, 30))
    (cell,) = cells(run("dlg", 10, 30, 31, 29), scale)
    assert cell.breached == share
