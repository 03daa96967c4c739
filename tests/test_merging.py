import json

import pytest

from benchmark.errors import RecordError
from benchmark.merging import merge
from benchmark.records import append, read_folder


@pytest.fixture
def folder(tmp_path, bench):
    """Make a results folder of some trials of `random` on the bench's protocol."""
    made = bench()

    def make(name, trials, changed=None, **update):
        path = tmp_path / name
        protocol = path / made.protocol.name
        protocol.mkdir(parents=True)
        (protocol / "protocol.json").write_text(json.dumps(made.protocol.frozen()))
        records = [r for r in made.run("random") if r.trial in trials]
        if changed is not None:
            metrics = {**records[changed].metrics, **update.pop("metrics", {})}
            records[changed] = records[changed].model_copy(update={"metrics": metrics, **update})
        append(protocol / "random.jsonl", records)
        return path

    return make


def trials(path):
    return sorted(record.trial for record in read_folder(path).records)


def test_each_record_is_there_once(folder, tmp_path):
    into = tmp_path / "all"
    one, other = folder("one", (0, 1)), folder("other", (1, 2))
    said = list(merge(into, [one, other]))
    assert trials(into) == [0, 1, 2]
    assert "other: 1 records joined, 1 were there" in said[1]
    assert next(merge(into, [one])).endswith("0 prices, 0 tunings, 0 attestations")
    assert trials(into) == [0, 1, 2]


def test_answers_that_differ_name_both_files_and_nothing_is_written(folder):
    one, other = folder("one", (0,)), folder("other", (0, 1, 2), changed=0, metrics={"psnr": 90.0})
    with pytest.raises(RecordError, match=r"other.*random.jsonl: none, seed 0, trial 0: psnr is"):
        list(merge(one, [other]))
    assert trials(one) == [0]


def test_rounding_of_another_machine_is_no_conflict(folder, bench):
    one = folder("one", (0,))
    psnr = next(iter(read_folder(one).records)).metrics["psnr"]
    place = next(iter(read_folder(one).records)).provenance.model_copy(
        update={"hardware": "another processor"}
    )
    near = folder("near", (0,), changed=0, metrics={"psnr": psnr + 1e-4}, provenance=place)
    assert "1 were there" in next(merge(one, [near]))


def test_status_that_differs_is_a_conflict(folder):
    one = folder("one", (0,))
    other = folder("other", (0,), changed=0, status="timed_out", kind="timeout", reason="late")
    with pytest.raises(RecordError, match=r"trial 0 timed out; .* completed; wanted one of them"):
        list(merge(one, [other]))


def test_protocol_of_another_digest_is_a_conflict(folder):
    one, other = folder("one", (0,)), folder("other", (1,))
    path = next(other.glob("*/protocol.json"))
    path.write_text(json.dumps({**json.loads(path.read_text()), "digest": "other"}))
    with pytest.raises(RecordError, match=r"protocol of digest other; .*; wanted records of one"):
        list(merge(one, [other]))


def test_damaged_line_and_a_missing_folder_end_in_one_line(folder, tmp_path):
    one, other = folder("one", (0,)), folder("other", (1,))
    with next(other.glob("*/random.jsonl")).open("a") as file:
        file.write("junk\n")
    with pytest.raises(RecordError, match=r"random.jsonl:\d+: not a record"):
        list(merge(one, [other]))
    with pytest.raises(RecordError, match="no results folder here"):
        list(merge(one, [tmp_path / "nowhere"]))
