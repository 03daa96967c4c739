import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from filelock import FileLock
from rich.console import Console

from benchmark import records
from benchmark.registry import Registry
from benchmark.running.engine import Inline
from benchmark.running.inprocess import InProcess
from benchmark.running.making import Maker
from benchmark.running.plan import groups
from benchmark.running.progress import Progress
from benchmark.running.runner import Runner, _beside, _by_seed


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def run(bench, results, provenance):
    """Run attacks in this process against no defense and return the files that were written."""

    def run(*attacks, plugins=None, **changes):
        registry = Registry([plugins] if plugins else [])
        chosen = groups(
            [bench(plugins, **changes).protocol],
            registry.find("defense", "none"),
            registry.select("attack", attacks),
            None,
            None,
        )
        before = {path: path.read_bytes() for path in results.rglob("*.jsonl")}
        maker = Maker(
            worker_of=lambda submission: InProcess(),
            provenance=provenance,
            device=torch.device("cpu"),
            mirror=None,
        )
        Runner(results, Inline(maker), Progress(0, 0, Console(file=io.StringIO()))).run(chosen)
        now = {path: path.read_bytes() for path in results.rglob("*.jsonl")}
        return {path.stem for path, content in now.items() if content != before.get(path)}

    return run


def test_only_what_changed_is_done_again(run, plugin, results, numbers):
    def mine(body, **manifest):
        return run("random", "mine", plugins=plugin("mine", body, **manifest))

    assert mine("return grey(seen)") == {"random", "mine"}
    assert mine("return grey(seen)") == set()
    assert mine("return grey(seen)", title="Another title", paper="A paper") == set()
    assert mine("return  grey(seen)  # another source") == set()
    assert mine("return grey(seen)", version=2) == {"mine"}
    assert len(numbers(results)) == 2 * 3
    variants = [{}, {"level": 0.25}]
    assert mine("return grey(seen)", version=2, variants=variants) == {"mine,level=0.25"}


def test_another_protocol_of_the_name_replaces_the_records(run, results, numbers):
    assert run("random") == {"random"}
    assert run("random", title="Another title") == set()
    first = numbers(results)
    assert run("random", version=2) == {"random"}
    assert numbers(results).keys() == first.keys()
    assert json.loads((results / "tiny/protocol.json").read_text())["version"] == 2


def test_another_seed_is_added(run, results, numbers):
    run("random", seeds=[0])
    run("random", seeds=[0, 1])
    assert [key[3] for key in numbers(results)] == [0] * 3 + [1] * 3


def test_deleted_trial_is_done_again_with_the_same_bits(run, results, numbers):
    run("random", "span_closed_form")
    path = results / "tiny/span_closed_form.jsonl"
    whole = numbers(results)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:3], *lines[4:]]))
    assert run("random", "span_closed_form") == {"span_closed_form"}
    assert numbers(results) == whole


def test_cut_anywhere_but_before_the_last_line_end_a_file_is_completed(run, results, numbers):
    run("random")
    path = results / "tiny/random.jsonl"
    whole, content = numbers(results), path.read_bytes()
    for cut in (*range(0, len(content) - 1, 97), len(content) - 2):
        path.write_bytes(content[:cut])
        run("random")
        assert numbers(results) == whole


def test_update_changed_in_place_harms_no_other_attack(run, plugin, results, numbers, tmp_path):
    run("span_closed_form")
    alone = numbers(results)
    body = "seen.update['pos_embed'].zero_(); seen.model.mean.add_(1); return grey(seen)"
    results.rename(tmp_path / "alone")
    run("a_vandal", "span_closed_form", plugins=plugin("a_vandal", body))
    made = numbers(results)
    vandal = [made.pop(key) for key in list(made) if key[2] == "a_vandal"]
    assert [(status, reason) for status, reason, _ in vandal] == [
        ("failed", "changed the observation in place")
    ] * 3
    assert made == alone


def test_records_of_one_stack_are_on_disk_before_the_next(run, plugin, results, monkeypatch):
    monkeypatch.setattr("benchmark.cell._STACK_TRIALS", 1)
    written = []

    def watched(path, made):
        append(path, made)
        written.append(path.read_text().count("\n"))

    append = records.append
    monkeypatch.setattr(records, "append", watched)
    run("random")
    assert written == [3, 4, 5]


def test_what_another_runner_holds_is_waited_for(run, results):
    code = (
        "import sys, time\nfrom filelock import FileLock\n"
        "with FileLock(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(1)"
    )
    lock = results / "tiny/.none.lock"
    lock.parent.mkdir(parents=True)
    words = [sys.executable, "-c", code, str(lock)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as other:
        other.stdout.readline()
        with pytest.raises(TimeoutError), FileLock(lock, timeout=0):
            pass
        assert run("random") == {"random"}
        assert other.poll() == 0 or other.wait(1) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="no fork there")
@pytest.mark.parametrize("engine", ["local", pytest.param("jobs", marks=pytest.mark.slow)])
def test_runs_that_meet_with_trouble_at_random_moments_end_as_a_whole_one(engine):
    script = Path(__file__).parents[1] / "endurance.py"
    words = [sys.executable, str(script), "--kills", "1", "--seed", "1", "--engine", engine]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "records lost: 0" in done.stdout


def test_rounds_stand_beside_one_another_each_in_its_order(bench):
    registry = Registry()
    chosen = groups(
        [bench(seeds=[0, 1, 2]).protocol],
        registry.select("defense", ["none", "withhold_position"]),
        registry.select("attack", ["random"]),
        None,
        None,
    )
    apart = _by_seed(chosen)
    assert [group.seeds[0] for group in _beside(apart, 1)] == [0, 0, 1, 1, 2, 2]
    assert [group.seeds[0] for group in _beside(apart, 2)] == [0, 1, 0, 1, 2, 2]
    assert [group.seeds[0] for group in _beside(apart, 9)] == [0, 1, 2, 0, 1, 2]
    assert sorted(map(str, _beside(apart, 2))) == sorted(map(str, apart))
