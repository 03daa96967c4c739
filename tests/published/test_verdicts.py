import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmark.published import NotRun, Ours, Tolerance, Value, in_order, judge, order

ONE = Tolerance(std=1)
numbers = st.floats(-1e6, 1e6)


def ours(mean, n=10, share=None, exact=False):
    return Ours(mean, 1.0, mean, n, share, exact)


def verdict(printed, mean, better="higher", **given):
    rules = {key: given.pop(key) for key in ("ordered", "number", "tolerance") if key in given}
    rules = {"tolerance": ONE, **rules}
    return str(judge(Value.read(printed), ours(mean, **given), better=better, **rules))


@pytest.mark.parametrize(
    ("mean", "better", "said"),
    [
        (10.9, "higher", "reproduced"),
        (9.1, "lower", "reproduced"),
        (11.1, "higher", "better"),
        (8.9, "lower", "better"),
        (8.9, "higher", "not reproduced"),
        (11.1, "lower", "not reproduced"),
    ],
)
def test_number_is_judged_by_tolerance_and_side(mean, better, said):
    assert verdict("10 ± 1", mean, better) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"n": 9}, "too few trials: 9 of 10"),
        ({"n": 9, "share": 0.01}, "under budget: 1 % of the paper's steps"),
        ({"share": 0.01}, "under budget: 1 % of the paper's steps"),
        ({"share": 0.01, "ordered": True}, "order reproduced"),
        ({"share": 1.0}, "not reproduced"),
        ({"ordered": True}, "order reproduced"),
        ({"n": 1, "exact": True}, "not reproduced"),
    ],
)
def test_number_that_falls_short_is_told_why(given, said):
    assert verdict("10 ± 1", 5, **given) == said


def test_few_trials_carry_no_verdict_however_good_they_are():
    assert verdict("10 ± 1", 10, n=9) == "too few trials: 9 of 10"
    assert verdict("10 ± 1", 100, n=9, share=0.5) == "under budget: 50 % of the paper's steps"


def test_number_reached_with_less_is_reproduced_all_the_same():
    assert verdict("10 ± 1", 10, share=0.1) == "reproduced"
    assert verdict("10 ± 1", 12, share=0.1) == "better"


@pytest.mark.parametrize(
    ("printed", "mean", "said"),
    [
        ("> 50", 51, "reproduced"),
        ("> 50", 50, "not reproduced"),
        ("< 20", 19, "reproduced"),
        ("< 20", 21, "not reproduced"),
    ],
)
def test_bound_is_kept_or_not(printed, mean, said):
    assert verdict(printed, mean) == said


def test_number_of_another_victim_is_judged_by_its_order_alone():
    assert verdict("10 ± 1", 10, number=False) == "not reproduced"
    assert verdict("10 ± 1", 99, number=False) == "not reproduced"
    assert verdict("10 ± 1", 99, number=False, ordered=True) == "order reproduced"


def test_reason_of_what_was_not_run_is_the_verdict():
    found = judge(Value.read(1), NotRun("no GPU"), better="higher", tolerance=ONE)
    assert (found.kind, str(found)) == ("not run", "not run: no GPU")


@given(printed=numbers, std=st.floats(0.01, 1e3), mean=numbers, step=st.floats(0.1, 1e6))
def test_verdict_gets_no_worse_as_the_attack_gets_better(printed, std, mean, step):
    value, worse = Value("", printed, std), ("not reproduced", "reproduced", "better")
    for better, sign in (("higher", 1), ("lower", -1)):
        found = [
            judge(value, ours(each), better=better, tolerance=ONE).kind
            for each in (mean, mean + sign * step)
        ]
        assert worse.index(found[0]) <= worse.index(found[1])


def pair(printed, mean, n=10):
    return Value.read(printed), ours(mean, n)


def test_order_is_that_of_every_pair():
    first, second, third = pair(1, 10), pair(2, 20), pair(3, 15)
    assert order([first, second]) is True
    assert order([first, second, third]) is False
    assert in_order(first, [second, third])
    assert not in_order(second, [first, third])


def test_pair_that_cannot_be_compared_is_left_out_of_an_order():
    first = pair(1, 10)
    for other in (pair(2, 5, n=9), pair(1, 5), pair("> 2", 5), (Value.read(2), NotRun("why"))):
        assert order([first, other]) is None
        assert not in_order(first, [other])


@given(st.lists(numbers, min_size=2, max_size=6, unique=True))
def test_order_of_equal_numbers_is_reproduced_and_of_negated_ones_not(printed):
    assert order([(Value("", each), ours(each)) for each in printed]) is True
    assert order([(Value("", each), ours(-each)) for each in printed]) is False
