import numpy as np
import pandas as pd
import pytest
from scipy import stats as scipy_stats

from benchmark.leaderboard import ranking
from tests.test_stats import declined, judged, run


def ranked(rows, higher=True, **given):
    return ranking.ranking(ranking.trials(judged(rows)), higher=higher, **given)


def ranks(found):
    return [(place.attack, place.rank) for place in found.places]


def means(found):
    return [place.score.mean for place in found.places]


NOISE = [0.5, -0.5, 0.4, -0.4] * 4


def around(level, sign=1):
    return [level + sign * n for n in NOISE]


def ten(number):
    return [number + i / 10 for i in range(10)]


def test_ranks_leave_room_after_a_tie():
    rows = run("a", *around(30)) + run("b", *around(30, -1)) + run("c", *around(10))
    assert ranks(ranked(rows)) == [("a", 1), ("b", 1), ("c", 3)]
    assert ranks(ranked(rows, higher=False)) == [("c", 1), ("a", 2), ("b", 2)]


def test_rank_counts_those_who_are_better_and_not_those_who_are_near():
    rows = run("a", *around(10)) + run("b", *around(9.9, -1))  # b cannot be told from a
    rows += run("c", *around(9.5))  # always half beneath a; not told from b
    assert ranks(ranked(rows)) == [("a", 1), ("b", 1), ("c", 2)]


def test_paired_comparison_sees_what_the_spread_of_trials_hides():
    wide = [float(10 * i) for i in range(12)]
    assert ranks(ranked(run("a", *wide) + run("b", *[n - 1 for n in wide]))) == [("a", 1), ("b", 2)]


def test_attack_of_nine_trials_is_not_ranked_and_takes_none_from_the_others():
    found = ranked(run("a", *ten(20)) + run("b", *ten(10)) + run("c", *ten(90)[:9]))
    assert ranks(found) == [("a", 1), ("b", 2)]
    assert found.few == {"c": 9}


def test_attacks_of_fewer_than_ten_trials_in_common_are_not_ranked():
    late = [row | {"trial": row["trial"] + 5} for row in run("b", *ten(10))]
    found = ranked(run("a", *ten(20)) + late)
    assert found.places == []
    assert found.few == {"a": 5, "b": 5}


def test_attack_set_aside_has_no_place():
    assert ranks(ranked(run("a", *ten(9)) + run("b", *ten(8)), aside=["a", "z"])) == [("b", 1)]


def test_controls_are_not_ranked():
    rows = run("a", *ten(30)) + run("oracle", *ten(160), control=True)
    assert ranks(ranked(rows)) == [("a", 1)]


TWO = run("a", *ten(20)) + run("a", *ten(30), defense="mjp") + run("b", *ten(18), defense="mjp")


def test_attack_that_does_not_apply_is_ranked_with_the_prior_of_the_same_trial():
    prior = run("prior_only", *ten(10), control=True)
    prior += run("prior_only", *ten(10), control=True, defense="mjp")
    found = ranked([*TWO, *prior, declined("b")])
    assert ranks(found) == [("a", 1), ("b", 2)]
    assert means(found) == pytest.approx([25.45, 14.45])


def test_attack_that_does_not_apply_drops_out_without_the_prior():
    found = ranked([*TWO, declined("b")])
    assert ranks(found) == [("a", 1)]
    assert found.absent == {"b": ["none"]}


def test_attack_that_ran_nowhere_has_no_rank_however_good_the_prior():
    prior = run("prior_only", *ten(90), control=True)
    found = ranked([*run("a", *ten(20)), *prior, declined("b")])
    assert ranks(found) == [("a", 1)]
    assert found.absent == {}


def test_defense_unavailable_to_one_attack_is_left_out_for_all():
    rows = run("a", *ten(20)) + run("b", *ten(10)) + run("a", *ten(90), defense="mjp")
    found = ranked([*rows, declined("b", "mjp", "unavailable")])
    assert means(found) == pytest.approx([20.45, 10.45])


def test_only_trials_that_every_ranked_attack_has_are_compared():
    found = ranked(run("a", *ten(20), 900) + run("b", *ten(10)))
    assert means(found) == pytest.approx([20.45, 10.45])
    assert (found.units, found.left_out) == (10, 1)


def test_score_over_defenses_is_the_mean_of_each_trial_over_them():
    rows = run("a", *ten(20)) + run("a", *ten(10), defense="mjp") + run("b", *ten(99))
    found = ranked(rows)
    assert means(found) == pytest.approx([15.45])
    assert found.places[0].score.n == 10
    assert found.absent == {"b": ["mjp"]}


def test_sign_flips_agree_with_scipys_permutation_test():
    draws = np.random.default_rng(3)
    gaps = draws.normal([0.0, 0.3, 1.0], 1, (12, 3))
    for gap, ours in zip(gaps.T, ranking.compare(gaps), strict=True):
        theirs = scipy_stats.permutation_test(
            (gap,), np.sum, permutation_type="samples", n_resamples=np.inf
        )
        assert ours == pytest.approx(theirs.pvalue, abs=0.015)


def test_twenty_equal_attacks_are_not_told_apart():
    draws = np.random.default_rng(0)
    rows = [row for i in range(20) for row in run(f"a{i}", *draws.normal(20, 3, 24))]
    assert {place.rank for place in ranked(rows).places} == {1}


def test_equal_scores_share_a_rank():
    frame = pd.DataFrame({"a": [1.0] * 12, "b": [1.0] * 12})
    frame.index = pd.MultiIndex.from_tuples(
        [("none", 0, i) for i in range(12)], names=["defense", "seed", "trial"]
    )
    assert ranks(ranking.ranking(frame, higher=True)) == [("a", 1), ("b", 1)]
