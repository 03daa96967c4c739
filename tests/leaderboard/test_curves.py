import pytest

from benchmark.leaderboard import studies
from benchmark.leaderboard.curves import curves
from benchmark.protocol import Curve, Suite

BATCHES = ("b4", "b2")


@pytest.fixture
def batches(folder):
    """Two protocols whose batch alone differs, one attack and the prior in each."""
    for name in BATCHES:
        settings = {"algorithm": "fedsgd", "batch_size": int(name[1])}
        folder.protocol(name, federation=settings)
        high = 100 - 10 * int(name[1])
        folder.cell("mine", *[high + i for i in range(10)], protocol=name)
        folder.cell("mine", 30, 31, protocol=name, defense="noise,scale=0.1")
        folder.cell("mine", 50, 51, protocol=name, defense="noise,scale=0.01")
        folder.cell("prior_only", 10, protocol=name, control=True)
    return folder


@pytest.fixture
def drawn(batches, monkeypatch):
    """Return the curves of one suite, as the board sees its records."""

    def draw(**curve):
        found = []
        monkeypatch.setattr(studies, "studies", lambda sections: found.extend(sections) or [])
        batches.write()
        suite = Suite(name="s", title="S", protocols=BATCHES, curves=[Curve(title="t", **curve)])
        return curves(suite, found)

    return draw


def means(line):
    return {x: one.score.mean for x, one in line.items()}


def test_a_setting_of_the_protocol_is_an_axis_and_the_prior_the_last_line(drawn):
    (one,) = drawn(x="federation.batch_size")
    assert one.places == [2, 4]
    assert list(one.lines) == ["mine", "prior_only"]
    assert means(one.lines["mine"]) == {2: 84.5, 4: 64.5}


def test_an_argument_of_a_defense_is_an_axis_and_a_setting_has_a_line_a_value(drawn):
    (one,) = drawn(x="noise.scale", lines="federation.batch_size", attacks=("mine",))
    assert one.places == [0.01, 0.1]
    assert {name: means(line) for name, line in one.lines.items()} == {
        "4": {0.01: 50.5, 0.1: 30.5},
        "2": {0.01: 50.5, 0.1: 30.5},
    }


def test_other_arguments_of_a_defense_make_another_curve(batches, drawn):
    batches.cell("mine", 1, 2, protocol="b2", defense="noise,scale=0.1,law=laplace")
    (one,) = drawn(x="noise.scale", protocols=("b2",))
    assert means(one.lines["mine"]) == {0.01: 50.5, 0.1: 30.5}
    (one,) = drawn(x="noise.scale", protocols=("b2",), defenses=("noise,law=laplace",))
    assert means(one.lines["mine"]) == {0.1: 1.5}


def test_defenses_stand_in_the_order_of_the_suite(drawn):
    named = ("noise,scale=0.1", "none")
    (one,) = drawn(x="defense", protocols=("b2",), defenses=named)
    assert one.places == [*named]
    assert means(one.lines["mine"]) == {"noise,scale=0.1": 30.5, "none": 84.5}


def test_an_argument_of_the_attacks_is_an_axis_and_each_defense_has_a_line(batches, drawn):
    for steps in (100, 50):
        scores = [steps + i for i in range(10)]
        batches.cell(f"dlg,steps={steps}", *scores, protocol="b2")
        batches.cell(f"dlg,steps={steps}", 7, 8, protocol="b2", defense="noise,scale=0.1")
    asked = {"x": "attack.steps", "protocols": ("b2",), "attacks": ("dlg",)}
    (one,) = drawn(**asked, defenses=("none", "noise,scale=0.1"), lines="defense")
    assert one.places == [50, 100]
    assert {name: means(line) for name, line in one.lines.items()} == {
        "none": {50: 54.5, 100: 104.5},
        "noise,scale=0.1": {50: 7.5, 100: 7.5},
        "prior_only": {50: 10, 100: 10},
    }
    (one,) = drawn(**asked)
    assert list(one.lines) == ["dlg", "prior_only"]
    assert means(one.lines["prior_only"]) == {50: 10, 100: 10}


def test_what_a_protocol_leaves_open_stands_where_the_suite_says_or_nowhere(drawn):
    assert drawn(x="victim.epochs") == []
    (one,) = drawn(x="victim.epochs", unsaid=0, protocols=("b4",))
    assert means(one.lines["mine"]) == {0: 64.5}


def test_a_suite_with_curves_has_a_page_with_its_picture_and_a_linked_table(batches, monkeypatch):
    suite = Suite(
        name="s",
        title="A study",
        protocols=BATCHES,
        curves=[Curve(title="The batch", x="federation.batch_size")],
    )
    monkeypatch.setattr(studies, "read_suites", lambda: {"s": suite})
    assert "- [A study](leaderboard/study_s.md)" in batches.text()
    page = batches.page("study_s")
    assert r"| 2 | [84.5 \[82.8, 86.4\]][" in page
    assert "| [10.0][fa2c] (1) |" in page  # one trial has no interval
    assert "](study_s.svg)" in page
    picture = batches.output.with_suffix("") / "study_s.svg"
    first = picture.read_bytes()
    assert b"The batch" in first
    batches.write()
    assert picture.read_bytes() == first
