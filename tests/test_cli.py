import dataclasses
import errno
import functools
import gzip
import os
import struct
import subprocess
import sys
from importlib.metadata import version

import huggingface_hub
import numpy as np
import pandas as pd
import pytest
import torch
from rich.console import Console

from benchmark.data import CATALOGUE, hub
from benchmark.errors import DataUnavailable
from benchmark.protocol import SuitePart, load_protocol, protocols_of
from benchmark.records import load_results, read_file, read_folder, storage
from benchmark.registry import Registry
from benchmark.running import order, start

OURS = ("random", "prior_only", "span_closed_form")


@pytest.fixture
def run(gradleak, tiny, tmp_path):
    """Run the tiny protocol (or another) into a results folder, against no defense."""

    def run(*words, suite=None, defense="none", attacks=("random",), results="results"):
        options = [word for attack in attacks for word in ("--attack", attack)]
        target = ["--results", tmp_path / results, "--defense", defense]
        return gradleak("run", suite or tiny(), *options, *target, *words)

    return run


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


FIVE = {"name": "digits", "split": "test", "size": 9}


def without(ended, results, *said):
    """Check that a command was refused in one line, and that nothing was written."""
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert ended.err.startswith("gradleak: error: ")
    assert all(part in ended.err for part in said), ended.err
    assert not results.exists()


def test_protocol_that_cannot_run_is_refused_before_anything_is_written(tiny, gradleak, results):
    for changes, said in (({"trials": 99999}, "99999 trials"), ({"data": FIVE}, "must tile")):
        ended = gradleak("run", tiny(**changes), "--attack", "random", "--results", results)
        without(ended, results, said)


def test_broken_plugins_disable_only_themselves(plugin, tiny, gradleak, results):
    plugin("quits", source="raise SystemExit(0)")
    plugin("breaks", source="raise RuntimeError('on import')", kind="defense")
    plugin("colours", colour="red")
    folder = plugin("grey", "return grey(seen)")
    words = ("run", tiny(), "--plugins", folder, "--results", results)
    asked = ("--attack", "quits", "--attack", "grey", "--defense", "breaks", "--defense", "none")
    ended = gradleak(*words, *asked)
    assert ended.code == 2
    told = sorted(line for line in ended.err.splitlines() if "disabled" in line)
    assert len(told) == 3
    assert all(any(name in line for line in told) for name in ("breaks", "colours", "quits"))
    frame = load_results(results)
    assert frame[["attack", "defense", "status"]].drop_duplicates().to_numpy().tolist() == [
        ["grey", "none", "completed"]
    ]


def test_plan_list_and_show_import_nothing_from_outside(plugin, tiny, gradleak, results, tmp_path):
    trace = tmp_path / "imported"
    source = f"'Mine.'\nopen({str(trace)!r}, 'w')\n"
    plugin("mine", source=source + "class Plugin: 'It reads.'\n")
    folder = plugin("hides", source=source + "class Plugin: 'It hides.'\n", kind="defense")
    plugged = ("--plugins", folder)
    words = ("--plan", "--verbose", "--attack", "mine", "--results", results)
    plan = gradleak("run", tiny(), *plugged, *words)
    assert (plan.code, plan.err) == (0, "")
    assert "hides" in plan.out
    assert "hides" in gradleak("list", "defenses", *plugged).out
    assert "It reads." in gradleak("show", "mine", *plugged).out
    assert not trace.exists()


def test_plugins_are_found_by_the_environment(plugin, gradleak, monkeypatch):
    monkeypatch.setenv("GRADLEAK_PLUGINS", str(plugin("mine")))
    assert "\nmine " in gradleak("list", "attacks").out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--trials", "0"], ["--trials", "1"]),
        (["--trials", "few"], ["--trials", "few", "whole number"]),
        (["--seeds", "one,2"], ["--seeds 'one,2': wanted whole numbers such as 0,1,2"]),
        (["--seeds", ""], ["--seeds ''"]),
        (["--device", "tpu"], ["--device 'tpu': wanted auto, cpu or cuda"]),
        (["--attack", "dlgg"], ["no attack 'dlgg'; did you mean dlg or "]),
        (["--attack", "nonesuch"], ["no attack 'nonesuch'; known: adaptive_matching, "]),
        (["--defense", "nonesuch"], ["no defense 'nonesuch'; did you mean none?"]),
        (["--defense", "gaussian_noise,size=1"], ["gaussian_noise,size=1: no argument 'size'; "]),
        (
            ["--defense", "gaussian_noise,scale=-1"],
            ["defense gaussian_noise,scale=-1: scale=-1 should be greater than or equal to 0"],
        ),
        (["--defense", "gaussian_noise,scale=.nan"], ["scale=nan should be"]),
        (["--defense", "gaussian_noise,scale=much"], ["scale=much should be a valid number"]),
        (["--defense", "fixed_position,encoding=new"], ["encoding=new should be 'sincos_1d', "]),
        (["--attack", "dlg,steps=0"], ["attack dlg,steps=0: steps=0 should be greater than 0"]),
        (["--attack", "dlg,steps=1.5"], ["steps=1.5 should be a valid integer"]),
        (["--defense", "gaussian_noise,1"], ["wanted gaussian_noise,key=value"]),
        (["--plugins", "/none/such"], ["/none/such: no submission.yaml in it or below"]),
        (["--data", "/none/such"], ["/none/such: no such folder; --data wants a mirror"]),
        (["--colour"], ["--colour"]),
        (["--results"], ["--results"]),
    ],
    ids=str,
)
def test_wrong_order_ends_in_one_line_and_writes_nothing(run, results, words, said):
    without(run(*words), results, *said)


def test_unknown_suite_ends_in_one_line_and_writes_nothing(run, results):
    without(run(suite="nonesuch"), results, "no suite or protocol 'nonesuch'; known: ", "quick")


def test_wrong_protocol_ends_in_one_line_and_writes_nothing(run, tiny, results):
    path = tiny(colour="red")
    lines = path.read_text().count("\n")
    without(run(suite=path), results, f"{path}:{lines}: unknown key 'colour'")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_missing_device_ends_in_one_line_and_writes_nothing(run, results):
    without(run("--device", "cuda"), results, "--device cuda: no CUDA device here; wanted")


@pytest.mark.parametrize(
    ("source", "manifest", "said"),
    [
        ("raise SystemExit(0)", {}, "cannot be imported: SystemExit: 0"),
        pytest.param(
            *("class Plugin: pass", {}, "wanted a class Plugin that is a Attack"),
            marks=pytest.mark.slow,
        ),
        (None, {"variants": [{"nonsense": 1}]}, "no argument 'nonsense'"),
        (None, {"name": "oracle"}, "the attack oracle is taken by"),
        (None, {"kind": "assault"}, "submission.yaml: kind: "),
    ],
)
def test_broken_plugin_ends_in_one_line_and_writes_nothing(
    run, plugin, results, source, manifest, said
):
    folder = plugin("mine", "return grey(seen)", source, **manifest)
    without(run("--trust-plugins", "--plugins", folder, attacks=("mine",)), results, "mine", said)


def test_unknown_command_ends_in_one_line(gradleak):
    ended = gradleak("fly")
    assert (ended.code, ended.err.count("\n")) == (2, 1)


def test_near_names_are_suggested(gradleak):
    for words, said in (
        (("run", "quik"), "no suite or protocol 'quik'; did you mean quick?"),
        (("list", "attack"), "no list of 'attack'; did you mean attacks"),
        (("show", "dlgg"), "nothing is called 'dlgg'; did you mean dlg"),
        (("nightli",), "Did you mean 'nightly'?"),
    ):
        ended = gradleak(*words)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert said in ended.err


def test_version_and_help_are_told(gradleak):
    assert gradleak("--version").out == f"gradleak {version('gradleak')}\n"
    assert "Commands:" in gradleak("-h").out
    assert "--protocols" in gradleak("run", "-h").out


def test_shell_completes_commands():
    asked = {"_GRADLEAK_COMPLETE": "complete_bash", "COMP_WORDS": "gradleak lead"}
    script = "import sys; from benchmark.cli import main; sys.argv = ['gradleak']; main()"
    told = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **asked, "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split() == ["leaderboard"]


@pytest.mark.parametrize("words", [("list", "attacks"), ("list", "protocols")], ids=str)
def test_listing_imports_no_torch(words):
    """Torch takes a second or more, all of what a listing may take."""
    script = f"""
import sys
from benchmark.cli import main
sys.argv = ["gradleak", *{words!r}]
try:
    main()
finally:
    print("torch" in sys.modules, file=sys.stderr)
"""
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert told.stderr == "False\n"
    assert len(told.stdout.splitlines()) > 20


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"victim": {"architecture": "april_c"}}, "tiny: no victim 'april_c'; known: "),
        ({"data": {"name": "digits", "size": 9}}, "must tile"),
        ({"trials": 798}, "tiny: 798 trials of 1 images wanted, digits has 797"),
        ({"victim": {"architecture": "cifar/resnet20", "width": 3}}, "takes no width"),
        (
            {"victim": {"architecture": "april_b", "patch": 4, "width": 10**9}},
            "Storage size calculation",
        ),
        ({"victim": {"architecture": "april_b", "patch": 4, "width": 10**6}}, " GiB of weights; "),
        ({"trials": 10**12}, "trials: Input should be less than or equal to 1000000"),
        ({"data": {"name": "digits", "size": 100_000}}, "size: Input should be less than"),
    ],
    ids=str,
)
def test_plan_refuses_what_could_not_run(run, tiny, results, changes, said):
    without(run("--plan", suite=tiny(**changes)), results, said)


def test_plan_says_what_is_due_and_writes_nothing(run, results):
    ended = run("--plan", attacks=OURS)
    assert (ended.code, ended.err) == (0, "")
    assert "3 cells, 3 due with 9 trials" in ended.out
    assert not results.exists()
    run("--trials", 2)
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    table = run("--plan", attacks=OURS).out.splitlines()
    assert "3 due with 7 trials" in table[0]
    assert ["tiny", "random", "1"] in [line.split() for line in table]
    table = run("--plan", "--verbose", attacks=OURS).out.splitlines()
    assert ["tiny", "none", "random", "0", "1"] in [line.split() for line in table]
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


def test_plan_and_run_say_what_it_costs_by_protocol(run, results):
    def costs(out):
        lines = out.splitlines()
        return lines[next(i for i, line in enumerate(lines) if "by source" in line) + 2].split()

    assert costs(run("--plan").out) == ["tiny", "3", "unknown", "3", "unknown"]
    assert costs(run("--trials", 2).out) == ["tiny", "2", "unknown", "2", "unknown"]
    assert costs(run("--plan").out) == ["tiny", "1", "<", "0:01", "1", "recorded"]


@pytest.mark.parametrize("suite", ["full_images", pytest.param("full", marks=pytest.mark.slow)])
def test_large_suite_is_planned_with_a_line_a_protocol(gradleak, results, suite):
    words = ["--attack", "oracle", "--defense", "none", "--results", results]
    ended = gradleak("run", suite, "--plan", *words)
    assert (ended.code, ended.err) == (0, "")
    costs = ended.out.split("by source")[1].splitlines()[2:]
    planned = {line.split()[0] for line in costs if line}
    assert planned == {*protocols_of(suite), "total"}


def test_smoke_tries_each_cell_and_writes_nothing(run, results):
    search = [*OURS, "dlg"]
    ended = run("--smoke", attacks=search)
    assert (ended.code, ended.err) == (0, "")
    rows = [line.split() for line in ended.out.splitlines() if line.startswith("tiny")]
    assert ["tiny", "none", "n/a", "dlg", "searches:"] in [row[:5] for row in rows]
    assert ["tiny", "none", "ok", "random,"] in [row[:4] for row in rows]
    assert not results.exists()


def test_smoke_of_an_attack_that_fails_ends_in_code_2(run, plugin, results):
    folder = plugin("crash", "raise ValueError('boom')")
    ended = run("--smoke", "--trust-plugins", "--plugins", folder, attacks=("random", "crash"))
    assert ended.code == 2
    assert "ValueError: boom" in next(line for line in ended.out.splitlines() if "failed" in line)
    assert not results.exists()


def test_smoke_names_what_is_missing(run, tiny, results, monkeypatch):
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(hub, "_fetch", unavailable)
    ended = run("--smoke", suite=tiny(**MNIST))
    assert ended.code == 0
    line = next(line for line in ended.out.splitlines() if "unavailable" in line)
    assert "GRADLEAK_DATA (not set)" in line
    assert "hf download mnist" in line
    assert not results.exists()


def test_smoke_of_a_protocol_that_cannot_run_is_a_failure(run, tiny):
    ended = run("--smoke", suite=tiny(trials=99999))
    assert ended.code == 2
    assert "99999 trials" in ended.out


def test_plan_and_smoke_together_are_refused(run, results):
    without(run("--plan", "--smoke"), results, "--plan and --smoke together")


def test_second_run_has_nothing_to_do(run, results, numbers):
    assert f"9 records written to {results}" in run(attacks=OURS).out.splitlines()
    made = numbers(results)
    again = run(attacks=OURS)
    assert again.code == 0
    assert "3 cells, 0 due with 0 trials" in again.out
    assert numbers(results) == made


def test_two_whole_runs_have_the_same_bits(run, numbers, tmp_path):
    for folder in ("one", "other"):
        run(defense="gaussian_noise", attacks=(*OURS, "wrong_update"), results=folder)
    one = numbers(tmp_path / "one")
    assert len(one) == 3 * 4 * 3
    assert one == numbers(tmp_path / "other")


def test_other_seeds_have_other_numbers(run, results, numbers):
    run("--seeds", "3,4,3")
    made = numbers(results)
    assert [key[3] for key in made] == [3] * 3 + [4] * 3
    assert made["tiny", "none", "random", 3, 0] != made["tiny", "none", "random", 4, 0]


def test_attack_that_fails_on_every_trial_ends_in_code_2_and_harms_no_other(
    run, plugin, results, numbers, tmp_path
):
    folder = plugin("crash", "raise ValueError('boom')")
    ended = run("--trust-plugins", "--plugins", folder, attacks=(*OURS, "crash"))
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "crash failed on every trial it was given: ValueError: boom (attack.py:" in ended.err
    run(attacks=OURS, results="alone")
    made = numbers(results)
    assert {key: made.pop(key)[2] for key in list(made) if key[2] == "crash"} == {
        (*key[:2], "crash", *key[3:]): made[key][2] for key in made if key[2] == "prior_only"
    }
    assert made == numbers(tmp_path / "alone")


def test_plugin_that_fails_on_some_trials_ends_in_code_0_and_has_no_secrets(
    run, plugin, results, monkeypatch
):
    monkeypatch.setenv("HF_TOKEN", "hush")
    fails = "raise KeyError(os.getpid(), 'hush' in os.environ.values())"
    body = f"print('a line')\nif len(CALLS) == 2: {fails}\nreturn grey(seen)"
    ended = run("--trust-plugins", "--plugins", plugin("shaky", body), attacks=("shaky",))
    assert (ended.code, ended.err) == (0, "")
    assert "failed: tiny x none x shaky: 1 trials: KeyError: (" in ended.out
    assert "a line" not in ended.out
    records = read_folder(results).records
    assert [record.status for record in records] == ["completed", "failed", "completed"]
    assert "False" in records[1].reason
    assert str(os.getpid()) not in records[1].reason  # it ran in another process


@pytest.mark.parametrize(
    "attacks",
    [("random", "span_closed_form"), pytest.param((), marks=pytest.mark.slow, id="all")],
)
def test_isolated_attacks_have_the_same_bits(run, numbers, tmp_path, attacks):
    words = ["--trials", 2, "--defense", "gaussian_noise,scale=0.01"]
    assert run(*words, attacks=attacks, results="inside").code == 0
    assert run(*words, "--isolate", attacks=attacks, results="isolated").code == 0
    inside = numbers(tmp_path / "inside")
    assert {key[2] for key in inside} == {s.label for s in Registry().select("attack", attacks)}
    assert "completed" in {status for status, *_ in inside.values()}
    assert inside == numbers(tmp_path / "isolated")


def test_truncated_and_foreign_lines_do_not_stop_a_run(run, results, numbers):
    run()
    path = results / "tiny/random.jsonl"
    whole = numbers(results)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:3], "a foreign line", lines[3], lines[4][:70]]))
    ended = run()
    assert ended.code == 0
    foreign, cut = ended.err.splitlines()
    assert foreign.startswith(f"gradleak: {path}:4: not a record: ")
    assert cut == f"gradleak: {path}:6: cut off before its end"
    assert "1 records written" in ended.out
    reading = read_file(path)
    assert [r.metrics for r in reading.records] == [metrics for *_, metrics in whole.values()]
    assert path.read_text().splitlines()[3] == "a foreign line"


def test_more_trials_than_there_are_are_all_there_are(run, results, numbers):
    assert run("--trials", 4).code == 0
    assert [trial for *_, trial in numbers(results)] == [0, 1, 2]


@pytest.mark.parametrize(("form", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_export_writes_the_table_that_pandas_reads(run, gradleak, results, tmp_path, form, read):
    run()
    file = tmp_path / f"all.{form}"
    ended = gradleak("export", "--format", form, "--output", file, "--results", results)
    assert (ended.code, ended.err) == (0, f"3 records, 32 columns written to {file}\n")
    wanted = load_results(results)
    found = read(file)
    assert list(found.columns) == list(wanted.columns)
    assert found["psnr"].tolist() == wanted["psnr"].tolist()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--format", "xls", "--output", "a"], "--format 'xls': wanted csv or parquet"),
        (["--format", "parquet", "--output", "-"], "--output -: wanted a file for parquet"),
        (["--output", "/none/such/a.csv"], "/none/such"),
    ],
)
def test_wrong_export_ends_in_one_line(run, gradleak, results, words, said):
    run()
    ended = gradleak("export", *words, "--results", results)
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert said in ended.err


def test_full_disk_ends_in_one_line_and_leaves_whole_files(run, results, monkeypatch):
    run()
    path = results / "tiny/prior_only.jsonl"

    def fill(file, data):
        file.write(data[:30])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(storage, "_write", fill)
    ended = run(attacks=OURS)
    assert ended.code == 2
    assert ended.err == f"gradleak: error: {path}: cannot be written: No space left on device\n"
    assert len(read_folder(results).records) == 3
    assert not read_folder(results).damaged


def test_results_below_a_file_end_in_one_line(run, tmp_path):
    (tmp_path / "file").touch()
    without(run(results="file/results"), tmp_path / "nothing", "file/results", "Not a directory")
    assert (tmp_path / "file").read_bytes() == b""


MNIST = {"data": {"name": "mnist", "size": 8}}


def unavailable(found, split):
    raise DataUnavailable(found.name, ["hub"], "hf download mnist")


def write_mnist(folder, monkeypatch):
    """Put a few drawn pictures where MNIST would lie, and let the catalogue take them."""
    (folder / "mnist").mkdir(parents=True)
    drawn = np.random.default_rng(0)
    for stem, count in (("train", 20), ("t10k", 10)):
        for kind, array in (
            ("images-idx3", drawn.integers(0, 256, (count, 28, 28), np.uint8)),
            ("labels-idx1", np.arange(count, dtype=np.uint8) % 10),
        ):
            header = struct.pack(f">HBB{array.ndim}i", 0, 8, array.ndim, *array.shape)
            path = folder / f"mnist/{stem}-{kind}-ubyte.gz"
            path.write_bytes(gzip.compress(header + array.tobytes()))
    entry = dataclasses.replace(CATALOGUE["mnist"], digest={}, size={"train": 20, "test": 10})
    monkeypatch.setitem(CATALOGUE.read, "mnist", entry)


def test_unavailable_data_is_recorded_tried_again_and_replaced(
    run, tiny, results, tmp_path, monkeypatch
):
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(hub, "_fetch", unavailable)
    path = tiny(**MNIST)
    for _ in range(2):
        ended = run(suite=path)
        assert (ended.code, ended.err) == (0, "")
        assert "unavailable: tiny: mnist is not available: tried " in ended.out
        assert "1 records written" in ended.out
        (record,) = read_folder(results).records
        assert (record.status, record.trial) == ("unavailable", None)
        for part in ("mnist", "GRADLEAK_DATA (not set)", "hub", "hf download mnist"):
            assert part in record.reason
    write_mnist(tmp_path / "mirror", monkeypatch)
    assert run("--data", tmp_path / "mirror", suite=path).code == 0
    assert [record.status for record in read_folder(results).records] == ["completed"] * 3


def test_unavailable_protocol_does_not_stop_the_others(run, tiny, results, monkeypatch):
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(hub, "_fetch", unavailable)
    both = [load_protocol(str(tiny("far", **MNIST))), load_protocol(str(tiny("near")))]
    monkeypatch.setattr(order, "load_suite", lambda *_: [SuitePart(tuple(both))])
    assert run(suite="both").code == 0
    statuses = [(record.protocol, record.status) for record in read_folder(results).records]
    assert statuses == [("far", "unavailable")] + [("near", "completed")] * 3


def test_suite_keeps_to_its_own_attacks_unless_others_are_named(gradleak, run, results):
    planned = gradleak("run", "april", "--plan", "--results", results)
    assert "april: 16 cells" in planned.out
    assert "idlg" not in planned.out
    named = gradleak("run", "april", "--plan", "--results", results, "--attack", "idlg")
    assert "april: 2 cells" in named.out
    assert "idlg" in named.out


def test_hub_kept_offline_is_unavailable_too(run, tiny, results, monkeypatch):
    monkeypatch.delenv("GRADLEAK_DATA", raising=False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(results.parent / "hub"))
    ended = run(suite=tiny(**MNIST))
    assert (ended.code, ended.err) == (0, "")
    assert "unavailable: tiny: mnist is not available" in ended.out
    assert "OfflineModeIsEnabled" in read_folder(results).records[0].reason


def test_help_imports_no_torch():
    code = (
        "import sys\n"
        "from benchmark.cli import main\n"
        "try: main()\n"
        "except SystemExit as ended: assert not ended.code\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    for words in ([], ["run"], ["leaderboard"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *words, "--help"], capture_output=True, text=True
        )
        assert "Usage: " in done.stdout
        assert done.stderr == "False\n"


@pytest.mark.parametrize("kind", ["attacks", "defenses", "protocols", "data", "metrics"])
def test_list_prints_a_table(gradleak, kind):
    ended = gradleak("list", kind)
    assert (ended.code, ended.err) == (0, "")
    assert len(ended.out.splitlines()) > 3


def test_show_prints_an_entry(gradleak):
    assert "name: oracle" in gradleak("show", "oracle").out


@pytest.mark.parametrize("words", [("list", "nonesuch"), ("show", "nonesuch")])
def test_unknown_name_ends_in_one_line(gradleak, words):
    ended = gradleak(*words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "nonesuch" in ended.err


@pytest.mark.parametrize("folder", ["empty", "missing"])
def test_board_of_nothing_is_refused(gradleak, tmp_path, folder):
    (tmp_path / "empty").mkdir()
    board = tmp_path / "board.md"
    ended = gradleak("leaderboard", "--results", tmp_path / folder, "--output", board)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert not board.exists()


def test_board_of_a_run_is_written_and_damage_is_told(run, gradleak, results, tmp_path):
    run(attacks=OURS)
    path = results / "tiny/random.jsonl"
    with path.open("a") as file:
        file.write("a foreign line\n")
    board = tmp_path / "board.md"
    ended = gradleak("leaderboard", "--results", results, "--output", board)
    assert ended.code == 0
    assert f"gradleak: {path}:6: not a record" in ended.err
    assert "span" in board.read_text()


def test_progress_is_plain_lines_in_a_pipe(run):
    out = run(attacks=OURS).out
    assert "\x1b" not in out
    assert "\r" not in out
    assert "[1/3 cells, < 0:01 left] tiny x none x seed 0" in out.splitlines()


def test_progress_is_bars_on_a_terminal(run, monkeypatch):
    terminal = functools.partial(Console, force_terminal=True, width=100)
    monkeypatch.setattr(start, "Console", terminal)
    said = run(attacks=OURS).out
    assert "\x1b[" in said
    assert "3/3" in said
    assert "elapsed" in said
    assert "3 of 3 cells, 0:0" in said
    assert "cells]" not in said


BREAKS = """
from dataclasses import dataclass
from benchmark.api import Defense, Update

@dataclass(frozen=True)
class Plugin(Defense):
    def protect_update(self, update, model, draws):
        return None
    def describe(self):
        return {describes}
"""


def test_defense_that_fails_is_blamed_and_other_cells_go_on(run, plugin, results):
    folder = plugin("breaks", source=BREAKS.format(describes="{}"), kind="defense")
    ended = run(
        "--defense",
        "breaks",
        "--trust-plugins",
        "--plugins",
        folder,
        attacks=("random", "prior_only"),
    )
    assert ended.code == 2
    assert ended.err == (
        "gradleak: error: defense breaks failed on every trial it was given: "
        "defense breaks: returned a NoneType; wanted an Update\n"
    )
    found = load_results(results)
    assert set(found[found.defense == "breaks"].status) == {"failed"}
    assert set(found[found.defense == "none"].status) == {"completed"}


def test_defense_that_cannot_be_described_is_refused(run, plugin, results):
    folder = plugin("breaks", source=BREAKS.format(describes="1 / 0"), kind="defense")
    ended = run("--trust-plugins", "--plugins", folder, defense="breaks")
    without(ended, results, "defense breaks: describe: ZeroDivisionError: division by zero")


def test_key_changes_the_noise_alone_and_its_digest_is_recorded(run, tmp_path, numbers):
    key = tmp_path / "key"
    key.write_bytes(b"sixteen bytes 16")
    words = ("--defense", "gaussian_noise,scale=0.1")
    attacks = ("random", "position_closed_form")
    assert run(*words, attacks=attacks, results="public").code == 0
    assert run(*words, "--key", key, attacks=attacks, results="keyed").code == 0
    public, keyed = (numbers(tmp_path / name) for name in ("public", "keyed"))
    told = {each.provenance.key for each in read_folder(tmp_path / "keyed").records}
    assert len(told) == 1
    assert None not in told
    for each in public:
        noised = each[1] != "none" and each[2] == "position_closed_form"
        assert (public[each] == keyed[each]) is not noised
    files = (tmp_path / "keyed").rglob("*.jsonl")
    assert all("sixteen" not in file.read_text() for file in files)


def test_records_of_two_keys_are_kept_apart(run, gradleak, tmp_path, results):
    key = tmp_path / "key"
    key.write_bytes(b"sixteen bytes 16")
    assert run("--key", key).code == 0
    before = {path: path.read_bytes() for path in results.rglob("*.jsonl")}
    for ended in (run(), gradleak("verify", "--results", results)):
        assert ended.code == 2
        assert "made under the key" in ended.err
        assert ended.err.count("\n") == 1
    assert {path: path.read_bytes() for path in results.rglob("*.jsonl")} == before


def test_bad_keys_are_refused(run, tmp_path, results):
    short = tmp_path / "short"
    short.write_bytes(b"short")
    without(run("--key", short), results, "5 bytes; wanted 16")
    without(run("--key", tmp_path / "none"), results, "cannot be read")
