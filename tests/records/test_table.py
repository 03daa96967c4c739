import json
import random

import pytest

from benchmark.errors import RecordError
from benchmark.metrics import Excerpt
from benchmark.records import (
    Identity,
    Provenance,
    Record,
    append,
    file_of,
    load_results,
    read_excerpts,
    read_table,
    table,
)

TEXT = Excerpt(truth=("a", " b"), answer=("a", ""), exact=(True, False), certain=None)
KINDS = {"failed": "crashed", "timed_out": "timeout"}


def record(protocol, defense, attack, seed, trial, *, version="1", status="completed", **fields):
    """Return a record whose numbers hang on its key alone."""
    draws = random.Random(str((protocol, defense, attack, seed, trial, version)))
    ran = trial is not None
    names = ("psnr", "lpips") if protocol == "images" else ("bleu",)
    parts = ("protocol_digest", "attack_version", "attack_fingerprint", "defense_version")
    rest = ("defense_fingerprint", "harness_version", "harness_fingerprint")
    return Record(
        protocol=protocol,
        defense=defense,
        attack=attack,
        identity=Identity(**dict.fromkeys((*parts, *rest), version)),
        control=attack == "oracle",
        threat="a server",
        seed=seed,
        trial=trial,
        status=status,
        kind=KINDS.get(status),
        reason=None if status == "completed" else "why",
        metrics={
            n: None if not ran or (n == "lpips" and trial % 2) else draws.random() for n in names
        },
        seconds=draws.random() if ran else None,
        gradient_evaluations=trial,
        peak_bytes=None,
        provenance=Provenance(commit=None, dirty=None, versions={"a": "1"}, hardware="h"),
        **fields,
    )


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"

    def keep(made):
        append(file_of(folder, made.protocol, made.attack), [made])

    for protocol in ("images", "text"):
        for defense in ("none", "noise,scale=0.1"):
            for attack in ("oracle", "guess"):
                for trial in (2, 0, 1):
                    status = ("completed", "failed", "timed_out")[trial]
                    shown = TEXT if protocol == "text" and trial == 0 else None
                    keep(record(protocol, defense, attack, 0, trial, status=status, excerpt=shown))
    keep(record("images", "none", "other", 0, None, status="not_applicable"))
    keep(record("images", "none", "guess", 1, None, status="unavailable"))
    keep(record("images", "none", "guess", 1, 0, version="2"))
    keep(record("images", "none", "guess", 0, 0, version="3"))
    return folder


def slowly(results, monkeypatch):
    monkeypatch.setattr(table, "_columns", lambda paths: None)
    return read_table(results).frame


def test_both_ways_of_reading_give_the_same_table(results, monkeypatch):
    quick, slow = read_table(results).frame, slowly(results, monkeypatch)
    assert list(quick.columns) == list(slow.columns)
    assert quick.to_csv(index=False) == slow.to_csv(index=False)


def test_table_has_a_row_a_trial_in_order_and_the_last_of_each_key(results):
    frame = read_table(results).frame
    assert len(frame) == 2 * 2 * 2 * 3 + 2
    key = ["protocol", "attack", "defense", "seed", "trial"]
    assert frame[key].astype(str).to_records(index=False).tolist() == sorted(
        frame[key].astype(str).to_records(index=False).tolist()
    )
    mine = frame[(frame["protocol"] == "images") & (frame["attack"] == "guess")]
    mine = mine[mine["defense"] == "none"]
    assert mine[["seed", "trial", "attack_version"]].to_numpy().tolist() == [
        [0, 0, "3"],
        [0, 1, "1"],
        [0, 2, "1"],
        [1, 0, "2"],  # the verdict there is no more: it ran
    ]
    assert frame.loc[frame["attack"] == "other", "trial"].tolist() == [-1]


def test_damaged_line_is_reported_and_all_else_is_read(results):
    whole = len(read_table(results).frame)
    path = file_of(results, "text", "oracle")
    path.write_text(path.read_text() + "hello\n")
    found = read_table(results)
    assert len(found.frame) == whole
    (line,) = found.damaged
    assert line.startswith(f"{path}:10: not a record")
    with pytest.raises(RecordError, match=r"oracle\.jsonl:10"):
        load_results(results)


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ('"status":"failed"', '"status":"fine"'),
        ('"kind":"crashed"', '"kind":"bored"'),
        ('"scores":[', '"scores":[1,'),
        ('"seed":0,"trial":1', '"trial":1'),
        ('"seed":0,"trial":1', '"seed":"0.5","trial":1'),
    ],
)
def test_line_that_says_what_it_may_not_is_reported_in_both_ways(results, monkeypatch, was, now):
    path = file_of(results, "text", "oracle")
    path.write_text(path.read_text().replace(was, now))
    quick = read_table(results)
    assert quick.damaged
    monkeypatch.setattr(table, "_columns", lambda paths: None)
    assert read_table(results).damaged == quick.damaged


def test_excerpts_are_of_one_protocol(results):
    found = read_excerpts(results, "text")
    assert {one.excerpt for one in found} == {TEXT}
    assert [(r.attack, r.defense) for r in found] == [
        (attack, defense)
        for attack in ("guess", "oracle")
        for defense in ("noise,scale=0.1", "none")
    ]
    assert read_excerpts(results, "images") == []


def test_empty_folder_is_an_empty_table(tmp_path):
    assert read_table(tmp_path).frame.empty
    with pytest.raises(RecordError, match="no results folder here"):
        load_results(tmp_path / "nowhere")


def test_table_holds_what_a_defense_says_of_itself_whichever_way_it_is_read(results):
    said = {"noise": 1.0, "epsilon": 2.1}
    made = record("images", "private", "mine", 0, 0, description=said)
    append(file_of(results, "images", "mine"), [made])
    table_of = read_table(results).frame
    (told,) = table_of[table_of["defense"] == "private"]["description"]
    assert json.loads(told) == said
    assert json.loads(table._rows([made])["description"][0]) == said
