import warnings

import pandas as pd
import pytest

from benchmark import stats
from benchmark.records import Provenance, Record


def record(attack, seed, trial, psnr, *, defense="none", status="completed", control=False):
    return Record(
        protocol="p",
        protocol_digest="d",
        defense=defense,
        defense_arguments={},
        defense_digest="x",
        attack=attack,
        attack_arguments={},
        attack_digest="x",
        control=control,
        threat="open",
        seed=seed,
        trial=trial,
        status=status,
        reason=None,
        metrics={} if psnr is None else {"psnr": psnr},
        seconds=None,
        gradient_evaluations=None,
        peak_bytes=None,
        provenance=Provenance(commit=None, dirty=None, versions={}, hardware="cpu"),
    )


def run(attack, *numbers, **given):
    return [record(attack, 0, trial, number, **given) for trial, number in enumerate(numbers)]


def declined(attack, defense="none", status="not_applicable"):
    return record(attack, 0, None, None, defense=defense, status=status)


def ranked(records, higher=True):
    scores = stats.trials(stats.table(records, ["psnr"]), "psnr")
    return stats.ranking(scores, "p", higher=higher)


def ranks(ranking):
    return [(place.attack, place.rank) for place in ranking.places]


def test_estimate_of_known_numbers():
    score = stats.estimate([1, 2, 3, 4], "known")
    assert score.mean == 2.5
    assert score.std == pytest.approx((5 / 3) ** 0.5)
    assert 1 <= score.low < 2.5 < score.high <= 4
    assert score.n == 4


def test_one_trial_has_neither_deviation_nor_interval():
    assert stats.estimate([7.0], "one") == stats.Estimate(7.0, None, None, None, 1)


def test_equal_numbers_have_an_interval_of_no_width_and_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert stats.estimate([0.1] * 48, "flat") == stats.Estimate(0.1, 0.0, 0.1, 0.1, 48)


def test_interval_depends_on_the_names_alone():
    numbers = [1.0, 2.0, 5.0, 9.0, 9.5]
    assert stats.estimate(numbers, "a") == stats.estimate(numbers, "a")
    assert stats.estimate(numbers, "a") != stats.estimate(numbers, "b")


def test_interval_of_many_normal_numbers_is_the_textbook_one():
    normal = [(i % 20 - 9.5) for i in range(2000)]
    score = stats.estimate(normal, "wide")
    assert score.high - score.low == pytest.approx(2 * 1.96 * score.std / 2000**0.5, rel=0.1)


def test_paired_difference_sees_what_the_spread_of_trials_hides():
    first = pd.Series([10.0, 20.0, 30.0, 40.0])
    gap = stats.difference(first, first - pd.Series([1.0, 1.1, 0.9, 1.0]), "gap")
    assert gap.mean == pytest.approx(1.0)
    assert gap.low > 0


def test_failed_trials_count_in_the_mean_with_their_prior_score():
    rows = [*run("dlg", 30, 30), record("dlg", 0, 2, 12, status="failed")]
    rows += [record("dlg", 0, 3, 8, status="timed_out")]
    (cell,) = stats.cells(stats.table(rows, ["psnr"]), ["psnr"], "p")
    assert (cell.n, cell.failed, cell.scores["psnr"].mean) == (4, 2, 20.0)


def test_the_later_of_two_records_of_one_trial_counts():
    table = stats.table([record("dlg", 0, 0, 1), record("dlg", 0, 0, 2)], ["psnr"])
    assert table["psnr"].tolist() == [2]


def test_a_verdict_is_dropped_where_the_cell_ran():
    table = stats.table([*run("dlg", 5), declined("dlg", status="unavailable")], ["psnr"])
    assert table["status"].tolist() == ["completed"]


def test_worst_case_leaves_controls_out_and_follows_the_direction():
    rows = [*run("oracle", 160, control=True), *run("dlg", 20), *run("ig", 25)]
    found = stats.cells(stats.table(rows, ["psnr"]), ["psnr"], "p")
    assert stats.worst_case(found, "psnr", higher=True).attack == "ig"
    assert stats.worst_case(found, "psnr", higher=False).attack == "dlg"
    assert stats.worst_case(found[-1:], "psnr", higher=True) is None  # the oracle alone


def test_ranks_leave_room_after_a_tie():
    rows = [*run("a", 30, 31, 32, 33), *run("b", 31, 30, 33, 31.9), *run("c", 9, 10, 11, 12)]
    assert ranks(ranked(rows)) == [("a", 1), ("b", 1), ("c", 3)]
    assert ranks(ranked(rows, higher=False)) == [("c", 1), ("b", 2), ("a", 2)]


def test_a_tie_is_with_the_leader_of_the_group_and_not_with_the_neighbour():
    noise = [0.5, -0.5, 0.4, -0.4] * 4
    rows = run("a", *[10 + n for n in noise])
    rows += run("b", *[9.9 - n for n in noise])  # ties with a
    rows += run("c", *[9.5 + n for n in noise])  # ties with b; always half beneath a
    assert ranks(ranked(rows)) == [("a", 1), ("b", 1), ("c", 3)]


def test_attacks_on_a_single_trial_cannot_be_told_apart():
    assert ranks(ranked([*run("a", 30), *run("b", 10)])) == [("a", 1), ("b", 1)]


def test_controls_are_not_ranked():
    assert ranks(ranked([*run("a", 30), *run("oracle", 160, control=True)])) == [("a", 1)]


TWO = [*run("a", 20, 22), *run("a", 30, 30, defense="mjp"), *run("b", 18, 18, defense="mjp")]


def test_attack_that_does_not_apply_is_ranked_with_the_prior_of_the_same_trial():
    prior = [*run("prior_only", 10, 14, control=True)]
    prior += run("prior_only", 10, 14, control=True, defense="mjp")
    ranking = ranked([*TWO, *prior, declined("b")])
    assert ranks(ranking) == [("a", 1), ("b", 2)]
    assert [place.score.mean for place in ranking.places] == [25.5, 15]


def test_attack_that_does_not_apply_drops_out_without_the_prior():
    ranking = ranked([*TWO, declined("b")])
    assert ranks(ranking) == [("a", 1)]
    assert ranking.absent == {"b": ["none"]}


def test_attack_that_ran_nowhere_has_no_rank_however_good_the_prior():
    prior = run("prior_only", 90, 90, control=True)
    ranking = ranked([*run("a", 20, 22), *prior, declined("b")])
    assert ranks(ranking) == [("a", 1)]
    assert ranking.absent == {}


def test_defense_unavailable_to_one_attack_is_left_out_for_all():
    rows = [*run("a", 20, 22), *run("b", 10, 12), *run("a", 90, 90, defense="mjp")]
    ranking = ranked([*rows, declined("b", "mjp", "unavailable")])
    assert [place.score.mean for place in ranking.places] == [21, 11]


def test_attack_unavailable_everywhere_takes_nothing_from_the_others():
    ranking = ranked([*run("a", 20, 22), declined("b", status="unavailable")])
    assert [place.score.mean for place in ranking.places] == [21]


def test_only_trials_that_every_ranked_attack_has_are_compared():
    ranking = ranked([*run("a", 20, 22, 90), *run("b", 10, 12)])
    assert [place.score.mean for place in ranking.places] == [21, 11]
    assert (ranking.units, ranking.left_out) == (2, 1)


def test_score_over_defenses_is_the_mean_of_each_trial_over_them():
    rows = [*run("a", 20, 22), *run("a", 10, 12, defense="mjp"), *run("b", 99, 99)]
    ranking = ranked(rows)
    assert [(place.attack, place.score.mean, place.score.n) for place in ranking.places] == [
        ("a", 16, 2)
    ]
    assert ranking.absent == {"b": ["mjp"]}


def test_threshold_itself_is_a_breach_in_either_direction():
    assert stats.breached([10, 30, 31, 29], 30, higher=True) == 0.5
    assert stats.breached([10, 30, 31, 29], 30, higher=False) == 0.75
    assert stats.breached([], 30, higher=True) is None
