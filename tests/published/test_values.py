import math

import pytest
from pydantic import ValidationError

from benchmark.published import Tolerance, Value


@pytest.mark.parametrize(
    ("written", "mean", "std", "bound"),
    [
        (0.5, 0.5, None, None),
        (7123210, 7123210, None, None),
        ("1.291e-04 ± 2.954e-04", 1.291e-4, 2.954e-4, None),
        (".945 ± .031", 0.945, 0.031, None),
        ("> 50", 50, None, "above"),
        ("< 20", 20, None, "below"),
    ],
)
def test_number_is_read_as_it_is_printed(written, mean, std, bound):
    assert Value.read(written) == Value(str(written), mean, std, bound)


@pytest.mark.parametrize("written", ["AdamW", "9/0.5", "0.5 ±", "±0.5", "0.5 dB"])
def test_words_are_no_number(written):
    value = Value.read(written)
    assert math.isnan(value.mean)
    assert value.text == written


@pytest.mark.parametrize(
    ("given", "number", "same"),
    [
        ({"std": 1}, 11.9, True),
        ({"std": 1}, 12.1, False),
        ({"absolute": 0.1}, 10.1, True),
        ({"absolute": 0.1}, 9.8, False),
        ({"absolute": 0}, 10, True),
        ({"absolute": 0}, 10.001, False),
        ({"factor": 2}, 5, True),
        ({"factor": 2}, 20, True),
        ({"factor": 2}, 21, False),
        ({"factor": 2}, -10, False),
        ({"factor": 2}, 0, False),
    ],
)
def test_tolerance_holds_within_its_own_measure(given, number, same):
    assert Tolerance(**given).holds(Value.read("10 ± 2"), number) == same


@pytest.mark.parametrize("given", [{}, {"std": 1, "factor": 2}, {"std": 0}, {"absolute": -1}])
def test_tolerance_of_two_measures_or_none_is_refused(given):
    with pytest.raises(ValidationError):
        Tolerance(**given)


def test_deviations_say_nothing_of_a_number_without_one():
    assert not Tolerance(std=1).holds(Value.read(10), 10)
