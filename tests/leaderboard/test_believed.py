"""The board believes no record: what cannot be true is refused with its file and line."""

import json

import pytest

from benchmark.leaderboard.believed import believed
from benchmark.records import append, file_of, write_protocol
from benchmark.registry import Registry

REGISTRY = Registry()


@pytest.fixture
def results(bench, tmp_path):
    """Three trials of the prior alone, and of a closed form, as they are recorded."""
    made, results = bench(), tmp_path / "results"
    for attack in ("prior_only", "position_closed_form"):
        append(file_of(results, "tiny", attack), made.run(attack))
    write_protocol(results, "tiny", made.protocol.frozen())
    return results


def changed(results, line, **fields):
    """Change a line of the closed form's file: the run, its cell, then the trials."""
    path = file_of(results, "tiny", "position_closed_form")
    lines = [json.loads(each) for each in path.read_text().splitlines()]
    lines[line] |= fields
    path.write_text("".join(json.dumps(one, separators=(",", ":")) + "\n" for one in lines))
    return path


def test_records_as_they_were_made_are_believed(results):
    table = believed(results, REGISTRY)
    assert len(table.frame) == 6
    assert table.damaged == []


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"scores": [160.1, 0.0]}, "psnr: wanted a number from 0 to 160"),
        ({"scores": [30.0, -0.5]}, "mse: wanted a number from 0 to 1"),
        ({"seconds": -1823.0}, "seconds: wanted a number from 0 on"),
        ({"gradients": -1}, "gradient_evaluations: wanted a number from 0 on"),
        ({"trial": 3}, "trial: wanted one of 3, from 0 on"),
        ({"status": "unavailable"}, "status: wanted a trial's of a trial, a verdict's of a whole"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_trial_that_cannot_be_true_is_refused_with_file_and_line(results, fields, said):
    path = changed(results, 3, **fields)
    table = believed(results, REGISTRY)
    assert len(table.frame) == 5
    (line,) = table.damaged
    assert line.startswith(f"{path}:4: refused: {said}")


def test_seed_is_chosen_by_the_protocol_where_anyone_cannot_make_the_record_again(results):
    path = changed(results, 3, seed=7)
    assert believed(results, REGISTRY).damaged == []
    changed(results, 0, attack="mine")
    path = path.rename(path.with_name("mine.jsonl"))
    (line,) = believed(results, REGISTRY).damaged
    assert line == f"{path}:4: refused: seed: wanted one of 0"


@pytest.mark.parametrize("word", ["NaN", "Infinity", "1e999"])
def test_number_that_is_not_finite_is_no_record(results, word):
    path = file_of(results, "tiny", "position_closed_form")
    *lines, last = path.read_text().splitlines()
    one = json.loads(last)
    last = last.replace(json.dumps(one["scores"][0]), word)
    path.write_text("\n".join([*lines, last]) + "\n")
    table = believed(results, REGISTRY)
    assert len(table.frame) == 5
    assert len(table.damaged) == 1
    assert table.damaged[0].startswith(f"{path}:5: ")


def test_negative_trial_is_no_verdict(results):
    path = changed(results, 3, trial=-1)
    table = believed(results, REGISTRY)
    assert len(table.frame) == 5
    assert f"{path}:4: not a record: trial: " in table.damaged[0]


def test_control_that_the_registry_knows_not_is_refused_and_one_line_tells_of_all(results):
    path = changed(results, 0, control=True)
    table = believed(results, REGISTRY)
    assert set(table.frame["attack"]) == {"prior_only"}
    said = f"{path}:3: refused: control: wanted as the registry says, and 2 more"
    assert table.damaged == [said]


def test_odd_name_is_refused(results):
    path = changed(results, 0, attack="<b>x")
    path.rename(path.with_name("<b>x.jsonl"))
    (line,) = believed(results, REGISTRY).damaged
    assert "refused: attack: wanted a name of letters, digits and _,=.+-, and 2 more" in line


@pytest.mark.parametrize("fields", [{"attack": "prior_only"}, {"protocol": "other"}], ids=str)
def test_records_in_a_file_of_another_name_are_refused_and_replace_none(results, fields):
    before = believed(results, REGISTRY).frame
    path = changed(results, 0, control=True, **fields)
    table = believed(results, REGISTRY)
    assert f"{path}:1: refused: 3 records of " in table.damaged[0]
    prior = before[before["attack"] == "prior_only"]
    assert table.frame["psnr"].tolist() == prior["psnr"].tolist()
