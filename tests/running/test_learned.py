import json

import pytest

from benchmark.running.cost import START
from benchmark.running.learned import FILE, Learned


@pytest.fixture
def learned(tmp_path):
    return Learned(tmp_path, "a processor", 2)


def test_ratio_is_the_median_of_a_protocols_last_five_runs(learned):
    for taken in (1000.0, 20.0, 30.0, 10.0, 30.0, 40.0):
        learned.add({"a": 1.0}, {"a": 10.0}, {"a": taken})
    assert learned.ratios() == {"a": 3.0, "": 3.0}


def test_protocol_that_never_ran_has_what_the_others_tell(learned):
    once = {"a": 1.0, "b": 1.0, "c": 1.0}
    learned.add(once, once, {"a": 2.0, "b": 4.0, "c": 9.0})
    assert learned.ratios()[""] == 4.0


def test_other_hardware_other_threads_and_bad_lines_tell_nothing(learned, tmp_path):
    Learned(tmp_path, "another", 2).add({"a": 1.0}, {"a": 1.0}, {"a": 2.0})
    Learned(tmp_path, "a processor", 1).add({"a": 1.0}, {"a": 1.0}, {"a": 2.0})
    with (tmp_path / FILE).open("a") as file:
        file.write('no json\n[1]\n{"protocol": "a"}\n')
    assert learned.ratios() == {}
    assert Learned(tmp_path / "none", "a processor", 2).ratios() == {}


def test_run_keeps_what_it_took_and_the_next_plan_is_corrected_by_it(tiny, gradleak, tmp_path):
    words = ["run", tiny(), "--attack", "random", "--defense", "none", "--results", tmp_path]
    assert gradleak(*words, "--trials", 1).code == 0
    (line,) = (tmp_path / FILE).read_text().splitlines()
    said = json.loads(line)
    assert said["protocol"] == "tiny"
    assert said["planned"] == pytest.approx(START)  # of what its attack takes nothing is known
    assert START < said["attacks"] < START + 1
    assert 0 < said["measured"] < 60
    said |= {"attacks": START, "measured": 12 * 60}
    (tmp_path / FILE).write_text(json.dumps(said))
    assert " 0:12 " in gradleak(*words, "--plan").out
