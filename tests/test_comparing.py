"""Two attacks are compared on the trials that both ran, and told apart only where chance is not."""

import pytest

from benchmark.comparing import differences
from benchmark.errors import RecordError

MADE = {}


@pytest.fixture
def results(plugin, tiny, gradleak, tmp_path_factory):
    """Run two plugins, once: one answers grey, the other a grey that is a little off."""
    if "results" in MADE:
        return MADE["results"]
    plugin("grey", "return grey(seen)")
    folder = plugin("dark", "return Reconstruction(grey(seen).images * 0.0)")
    made = tmp_path_factory.mktemp("compared") / "results"
    words = ("--plugins", folder, "--results", made, "--defense", "none")
    few, many = tiny("few", trials=3), tiny("many", trials=12)
    for path in (few, many):
        ended = gradleak("run", path, "--attack", "grey", "--attack", "dark", *words)
        assert ended.code == 0
    MADE["results"] = made
    return made


def test_differences_are_those_of_the_records_and_change_sign_with_the_order(results):
    there = differences(results, "grey", "dark")
    back = differences(results, "dark", "grey")
    assert [(one.protocol, one.gap.n) for one in there] == [("few", 3), ("many", 12)]
    assert [one.gap.mean for one in there] == [-one.gap.mean for one in back]
    assert [one.verdict for one in there] == ["under 10 trials", there[1].verdict]
    assert {there[1].verdict, back[1].verdict} == {"sees more", "sees less"}
    assert there[1].gap.low < there[1].gap.mean < there[1].gap.high


def test_attack_is_not_compared_with_itself(results):
    with pytest.raises(RecordError, match="wanted two attacks"):
        differences(results, "grey", "grey")


def test_command_prints_a_row_a_protocol_and_defense(results, gradleak):
    ended = gradleak("compare", "grey", "--against", "dark", "many", "--results", results)
    assert ended.code == 0
    (row,) = ended.out.splitlines()[4:]
    assert row.split()[:2] == ["many", "none"]
    assert "few" not in ended.out


def test_attack_without_records_is_refused(results):
    with pytest.raises(RecordError, match="no records of dlg; those of: dark, grey"):
        differences(results, "dlg", "grey")
    with pytest.raises(RecordError, match="no trial that both grey and dark ran"):
        differences(results, "grey", "dark", ["elsewhere"])
