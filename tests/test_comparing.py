"""Two attacks are compared on the trials that both ran, and told apart only where chance is not."""

import pytest

from benchmark.comparing import differences
from benchmark.errors import RecordError


@pytest.fixture
def results(tiny, gradleak, tmp_path):
    """Run two controls: the mean of public images tells more than noise does."""
    words = ("--attack", "prior_only", "--attack", "random", "--defense", "none")
    for path in (tiny("few", trials=3), tiny("many", trials=12)):
        assert gradleak("run", path, *words, "--results", tmp_path / "results").code == 0
    return tmp_path / "results"


def test_differences_are_those_of_the_records_and_change_sign_with_the_order(results):
    there = differences(results, "prior_only", "random")
    back = differences(results, "random", "prior_only")
    assert [(one.protocol, one.gap.n) for one in there] == [("few", 3), ("many", 12)]
    assert [one.gap.mean for one in there] == [-one.gap.mean for one in back]
    assert [one.verdict for one in there] == ["under 10 trials", there[1].verdict]
    assert {there[1].verdict, back[1].verdict} == {"sees more", "sees less"}
    assert there[1].gap.low < there[1].gap.mean < there[1].gap.high


def test_attack_is_not_compared_with_itself(results):
    with pytest.raises(RecordError, match="wanted two attacks"):
        differences(results, "random", "random")


def test_command_prints_a_row_a_protocol_and_defense(results, gradleak):
    ended = gradleak("compare", "prior_only", "--against", "random", "many", "--results", results)
    assert ended.code == 0
    (row,) = ended.out.splitlines()[4:]
    assert row.split()[:2] == ["many", "none"]
    assert "few" not in ended.out


def test_attack_without_records_is_refused(results):
    with pytest.raises(RecordError, match="no records of dlg; those of: prior_only, random"):
        differences(results, "dlg", "prior_only")
    with pytest.raises(RecordError, match="no trial that both prior_only and random ran"):
        differences(results, "prior_only", "random", ["elsewhere"])
