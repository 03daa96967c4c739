import errno
import json
import subprocess
import sys

import pytest

from benchmark import records
from benchmark.errors import RecordError
from benchmark.records import (
    Provenance,
    Record,
    append,
    check_writable,
    read_file,
    read_folder,
    replace,
    rewrite,
    write_protocol,
)


def record(trial, seed=0, **fields):
    return Record(
        **{
            "protocol": "tiny",
            "protocol_digest": "p",
            "defense": "none",
            "defense_arguments": {},
            "defense_digest": "d",
            "attack": "guess",
            "attack_arguments": {"scale": 0.1},
            "attack_digest": "a",
            "control": False,
            "threat": "a server",
            "seed": seed,
            "trial": trial,
            "status": "completed",
            "reason": None,
            "metrics": {"psnr": 1 / 3, "lpips": None},
            "seconds": 0.1,
            "gradient_evaluations": 3,
            "peak_bytes": 4,
            "provenance": Provenance(commit=None, dirty=None, versions={}, hardware="h"),
            **fields,
        }
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results/tiny/none/guess.jsonl"


def test_record_has_what_a_reader_needs():
    line = json.loads(record(0).line())
    wanted = "protocol attack defense seed trial status reason metrics seconds provenance"
    assert set(wanted.split()) <= set(line)


def test_records_are_read_back_as_they_were(path):
    made = [record(0), record(1, reason="a\nb", status="failed"), record(None, seed=2)]
    append(path, made[:2])
    append(path, made[2:])
    assert read_file(path).records == made
    assert read_folder(path.parents[2]).records == made
    assert path.read_text().count("\n") == 3


def test_number_that_is_not_finite_is_not_written(path):
    append(path, [record(0)])
    with pytest.raises(ValueError, match="not JSON compliant"):
        append(path, [record(1, metrics={"psnr": float("nan")})])
    assert read_file(path).records == [record(0)]


def test_missing_file_holds_nothing(path):
    assert read_file(path) == records.Reading()


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(RecordError, match="none: no results folder here"):
        read_folder(tmp_path / "none")


def test_truncated_last_line_is_reported_with_its_number(path):
    append(path, [record(0), record(1)])
    path.write_bytes(path.read_bytes()[:-20])
    reading = read_file(path)
    assert reading.records == [record(0)]
    (damage,) = reading.damaged
    assert damage == f"{path}:2: cut off before its end"


def test_record_without_its_line_end_is_no_record_and_the_next_append_drops_it(path):
    append(path, [record(0), record(1)])
    path.write_bytes(path.read_bytes()[:-1])
    assert read_file(path).records == [record(0)]
    append(path, [record(2)])
    reading = read_file(path)
    assert (reading.records, reading.damaged) == ([record(0), record(2)], [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hello", "not a record: Invalid JSON"),
        ("[1]", "not a record: "),
        ("\ufeff{}", "not a record: Invalid JSON"),
        (record(1).line().replace('"seed"', '"sed"'), "not a record: seed: Field required"),
        (record(1).line().replace('"completed"', '"fine"'), "not a record: status: Input should"),
        (record(1).line()[:-1] + ',"colour":1}', "not a record: colour: Extra inputs"),
    ],
)
def test_foreign_line_is_reported_and_the_rest_is_read(path, line, said):
    append(path, [record(0)])
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n\n{record(2).line()}\n")
    reading = read_file(path)
    assert reading.records == [record(0), record(2)]
    (damage,) = reading.damaged
    assert damage.startswith(f"{path}:2: {said}")
    assert "\n" not in damage


def test_bytes_that_are_no_text_are_reported(path):
    append(path, [record(0)])
    with path.open("ab") as file:
        file.write(b"\xff\x00\xfe\n")
    assert len(read_file(path).damaged) == 1


def test_append_cuts_the_tail_of_a_kill_and_keeps_foreign_lines(path):
    append(path, [record(0)])
    with path.open("a") as file:
        file.write("a foreign line\n" + record(1).line()[:50])
    append(path, [record(1)])
    assert read_file(path).records == [record(0), record(1)]
    assert path.read_text().splitlines()[1] == "a foreign line"


def test_append_after_a_long_line_cut_short_keeps_the_whole_ones(path):
    append(path, [record(0), record(1, reason="x" * 20_000)])
    path.write_bytes(path.read_bytes()[:-5])
    append(path, [record(1)])
    assert read_file(path).records == [record(0), record(1)]


def test_rewrite_orders_and_replaces(path):
    append(path, [record(1, seed=1), record(1), record(0)])
    rewrite(path, [record(1, seed=1), record(1), record(None)])
    assert read_file(path).records == [record(None), record(1), record(1, seed=1)]


def test_failed_replace_leaves_the_old_file_and_no_other(path, monkeypatch):
    replace(path, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records.os, "fsync", full)
    with pytest.raises(RecordError, match=r"guess\.jsonl: cannot be written: No space left"):
        replace(path, "new")
    assert [(each.name, each.read_text()) for each in path.parent.iterdir()] == [
        ("guess.jsonl", "old")
    ]


def test_failed_append_leaves_the_file_whole(path, monkeypatch):
    append(path, [record(0)])

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(records.os, "fsync", full)
    with pytest.raises(RecordError, match="cannot be written: No space left on device"):
        append(path, [record(1), record(2)])
    assert path.read_text() == record(0).line() + "\n"


LIMITED = """
import resource, sys
from pathlib import Path
from benchmark.errors import RecordError
from benchmark.records import append, read_file
path = Path(sys.argv[1])
made = read_file(path).records
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100,) * 2)
try:
    append(path, made)
except RecordError as error:
    print(error)
"""


def test_file_that_may_not_grow_keeps_its_whole_lines(path):
    append(path, [record(0), record(1)])
    words = [sys.executable, "-c", LIMITED, str(path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == f"{path}: cannot be written: File too large\n"
    assert read_file(path).records == [record(0), record(1)]


def test_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RecordError, match="file/results: cannot be written: Not a directory"):
        check_writable(tmp_path / "file/results")
    with pytest.raises(RecordError, match="cannot be"):
        append(tmp_path / "file/results/a.jsonl", [record(0)])


def test_check_leaves_nothing_behind(tmp_path):
    check_writable(tmp_path / "a/b")
    assert list(tmp_path.iterdir()) == []


def test_protocol_is_written_once_while_it_stays_the_same(tmp_path):
    path = tmp_path / "tiny/protocol.json"
    write_protocol(tmp_path, "tiny", {"b": 1, "a": 2})
    first = path.stat().st_ino
    write_protocol(tmp_path, "tiny", {"a": 2, "b": 1})
    assert path.stat().st_ino == first
    write_protocol(tmp_path, "tiny", {"a": 3})
    assert json.loads(path.read_text()) == {"a": 3}
