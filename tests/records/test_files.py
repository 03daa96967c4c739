import errno
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmark.errors import RecordError
from benchmark.records import (
    Identity,
    Provenance,
    Reading,
    Record,
    append,
    check_writable,
    known,
    read_file,
    read_folder,
    replace,
    rewrite,
    storage,
    write_protocol,
)
from benchmark.records.lines import encode

IDENTITY = Identity(
    protocol_digest="p",
    attack_version="1",
    attack_fingerprint="a",
    defense_version="1",
    defense_fingerprint="d",
    harness_version="1",
    harness_fingerprint="h",
)
HEADERS = 2  # lines before the first trial of a cell


def record(trial, seed=0, **fields):
    return Record(
        **{
            "protocol": "tiny",
            "defense": "none",
            "attack": "guess",
            "identity": IDENTITY,
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


def written(trial):
    """Return the line of a trial, without its headers."""
    return encode([record(trial)]).splitlines()[-1]


def verdict(seed=0):
    nothing = dict.fromkeys(("seconds", "gradient_evaluations", "peak_bytes"))
    none = {"psnr": None, "lpips": None}
    return record(None, seed, status="not_applicable", reason="n", metrics=none, **nothing)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results/tiny/guess.jsonl"


def test_records_are_read_back_as_they_were(path):
    made = [record(0), record(1, reason="a\nb", status="failed", kind="crashed"), verdict(seed=2)]
    append(path, made[:2])
    append(path, made[2:])
    assert read_file(path).records == made
    assert read_folder(path.parents[1]).records == made
    assert path.read_text().count("\n") == HEADERS + 3


def test_number_that_is_not_finite_is_not_written(path):
    append(path, [record(0)])
    with pytest.raises(ValueError, match="not JSON compliant"):
        append(path, [record(1, metrics={"psnr": float("nan")})])
    assert read_file(path).records == [record(0)]


def test_missing_file_holds_nothing(path):
    assert read_file(path) == Reading()


def test_missing_folder_is_refused(tmp_path):
    with pytest.raises(RecordError, match="none: no results folder here"):
        read_folder(tmp_path / "none")


def test_truncated_last_line_is_reported_with_its_number(path):
    append(path, [record(0), record(1)])
    path.write_bytes(path.read_bytes()[:-20])
    reading = read_file(path)
    assert reading.records == [record(0)]
    (damage,) = reading.damaged
    assert damage == f"{path}:{HEADERS + 2}: cut off before its end"


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
        ("hello", "Expecting value"),
        ("[1]", "wanted an object, got list"),
        ("\ufeff{}", "wanted a header or a trial"),
        (written(1).replace('"seed"', '"sed"'), "seed: Field required"),
        (written(1).replace('"trial"', '"status":"fine","trial"'), "status: Input should"),
        (written(1)[:-1] + ',"colour":1}', "colour: Extra inputs"),
        (written(1).replace("[0.3333333333333333,null]", "[1]"), "1 scores of 2 metrics"),
        (written(1).replace('{"in":"', '{"in":"x'), "of no cell 'x"),
    ],
)
def test_foreign_line_is_reported_and_the_rest_is_read(path, line, said):
    append(path, [record(0)])
    with path.open("a", encoding="utf-8") as file:
        file.write(f"{line}\n\n{written(2)}\n")
    reading = read_file(path)
    assert reading.records == [record(0), record(2)]
    (damage,) = reading.damaged
    assert damage.startswith(f"{path}:{HEADERS + 2}: not a record: {said}")
    assert "\n" not in damage


def test_bytes_that_are_no_text_are_reported(path):
    append(path, [record(0)])
    with path.open("ab") as file:
        file.write(b"\xff\x00\xfe\n")
    assert len(read_file(path).damaged) == 1


def test_append_cuts_the_tail_of_a_kill_and_keeps_foreign_lines(path):
    append(path, [record(0)])
    with path.open("a") as file:
        file.write("a foreign line\n" + written(1)[:50])
    append(path, [record(1)])
    assert read_file(path).records == [record(0), record(1)]
    assert path.read_text().splitlines()[HEADERS + 1] == "a foreign line"


def test_append_after_a_long_line_cut_short_keeps_the_whole_ones(path):
    append(path, [record(0), record(1, reason="x" * 20_000)])
    path.write_bytes(path.read_bytes()[:-5])
    append(path, [record(1)])
    assert read_file(path).records == [record(0), record(1)]


def test_rewrite_keeps_what_is_chosen_in_order(path):
    append(path, [record(1, seed=1), record(1), record(0), record(1)])
    rewrite(path, lambda held: held[:-1])
    assert read_file(path).records == [record(0), record(1), record(1, seed=1)]


def test_rewrite_leaves_a_file_with_a_foreign_line_alone(path):
    append(path, [record(0), record(1)])
    path.write_text(path.read_text() + "a foreign line\n")
    rewrite(path, lambda held: held[:1])
    assert read_file(path).records == [record(0), record(1)]


def test_what_a_run_shares_stands_once(path):
    append(path, [record(0), record(1)])
    append(path, [record(2), record(0, defense="noise")])
    kinds = [next(iter(json.loads(line))) for line in path.read_text().splitlines()]
    assert kinds == ["schema", "cell", "in", "in", "in", "cell", "in"]


def test_lines_may_stand_in_any_order_and_twice(path):
    append(path, [record(0), record(1, defense="noise")])
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*reversed(lines), *lines]))
    reading = read_file(path)
    assert not reading.damaged
    assert {one.key: one for one in reading.records} == {
        one.key: one for one in (record(0), record(1, defense="noise"))
    }


def test_reader_goes_on_where_it_stopped_and_notices_another_file(path):
    append(path, [record(0)])
    assert known(path).records == [record(0)]
    append(path, [record(1)])
    assert known(path).records == [record(0), record(1)]
    rewrite(path, lambda held: held[1:])
    assert known(path).records == [record(1)]
    path.unlink()
    assert known(path).records == []


def test_file_of_a_newer_program_is_refused_by_file_and_line(path):
    append(path, [record(0)])
    path.write_text(path.read_text().replace('"schema":2', '"schema":3'))
    said = f"{path}:1: schema 3; this gradleak reads up to 2: update it"
    for read in (read_file, lambda path: read_folder(path.parents[1])):
        with pytest.raises(RecordError) as error:
            read(path)
        assert str(error.value) == said


OLD = (
    '{"protocol":"tiny","protocol_digest":"p","defense":"none","defense_arguments":{},'
    '"defense_digest":"d","attack":"guess","attack_arguments":{},"attack_digest":"a",'
    '"control":false,"threat":"t","seed":0,"trial":0,"status":"timed_out","reason":"late",'
    '"metrics":{"psnr":1.5},"seconds":0.1,"gradient_evaluations":0,"peak_bytes":0,"provenance":'
    '{"commit":"c","dirty":false,"versions":{"torch":"2"},"hardware":"A CPU, 2 threads"}}'
)


def test_record_of_the_first_form_is_read_as_of_another_version(path):
    old = path.parent / "none/guess.jsonl"
    old.parent.mkdir(parents=True)
    old.write_text(OLD + "\n")
    (one,) = read_folder(path.parents[1]).records
    assert (one.key, one.metrics) == (("tiny", "none", "guess", 0, 0), {"psnr": 1.5})
    assert (one.status, one.kind, one.reason) == ("timed_out", "timeout", "late")
    assert (one.provenance.hardware, one.provenance.threads) == ("A CPU", 2)
    assert one.identity.decides == ("p", "source a", "source d", "unknown")


def git(folder, *words):
    named = ["-c", "user.name=a", "-c", "user.email=a@b"]
    command = ["git", "-C", str(folder), *named, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_two_machines_that_add_different_cells_merge_without_conflict(tmp_path):
    path = tmp_path / "results/tiny/guess.jsonl"
    git(tmp_path, "init", "-b", "main")
    shutil.copy(Path(__file__).parents[2] / ".gitattributes", tmp_path)
    append(path, [record(0)])
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    for machine, defense in (("one", "noise"), ("other", "shuffle")):
        git(tmp_path, "checkout", "-b", machine, "main")
        append(path, [record(trial, defense=defense) for trial in range(3)])
        git(tmp_path, "commit", "-am", machine)
    git(tmp_path, "merge", "one")
    reading = read_file(path)
    assert not reading.damaged
    assert {(r.defense, r.trial) for r in reading.records} == {
        ("none", 0),
        *((defense, trial) for defense in ("noise", "shuffle") for trial in range(3)),
    }


def test_failed_replace_leaves_the_old_file_and_no_other(path, monkeypatch):
    replace(path, "old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage.os, "fsync", full)
    with pytest.raises(RecordError, match=r"guess\.jsonl: cannot be written: No space left"):
        replace(path, "new")
    assert [(each.name, each.read_text()) for each in path.parent.iterdir()] == [
        ("guess.jsonl", "old")
    ]


def test_file_written_over_by_a_longer_one_that_is_cut_is_read_anew(path):
    append(path, [record(0), record(1)])
    assert len(known(path).records) == 2
    text = encode([record(0), record(1, reason="so many words that the line is longer")])
    path.write_text(text[:-2])
    assert [each.trial for each in known(path).records] == [0]
    assert "cut off before its end" in known(path).damaged[0]


def fill(file, data):
    """Write some of it, as to a disk that is full then."""
    file.write(data[:30])
    raise OSError(errno.ENOSPC, "No space left on device")


def test_failed_append_leaves_the_file_whole(path, monkeypatch):
    append(path, [record(0)])
    monkeypatch.setattr(storage, "_write", fill)
    with pytest.raises(RecordError, match="cannot be written: No space left on device"):
        append(path, [record(1), record(2)])
    assert path.read_text() == encode([record(0)])


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
