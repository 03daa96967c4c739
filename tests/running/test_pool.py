import os
import signal
from types import SimpleNamespace

import pytest
import torch

from benchmark.federation import KEPT_BYTES
from benchmark.records import append, file_of, read_folder
from benchmark.running.engine import Ended
from benchmark.running.making import Made, Terms
from benchmark.running.needs import kept_bytes, memory_of, room, sharing
from benchmark.running.pool import Pool, _strange
from benchmark.running.process import Child
from benchmark.running.wall import trouble
from benchmark.seeds import PUBLIC


@pytest.fixture(scope="module")
def two():
    """A pool of two processes of a thread each, kept: what dies in a test is replaced."""
    with Pool(Terms("cpu", None, PUBLIC, isolate=False, trust=False), [{}, {}], 1, None) as made:
        yield made


@pytest.fixture
def pool(two, monkeypatch):
    """Return the pool with so much memory, of which a cell takes so much."""

    def make(memory=1, free=2):
        monkeypatch.setattr(two, "_memory_of", lambda cell: memory)
        monkeypatch.setattr(two, "_free", free)
        return two

    return make


def all_of(pool, cells):
    """Return the scores of cells by name, and how each ended."""
    for cell in cells:
        pool.start(cell, range(3))
    scores, ended = {}, {}
    while len(ended) < len(cells):
        cell, said = pool.take()
        if isinstance(said, Ended):
            ended[str(cell)] = said
        else:
            scores.setdefault(str(cell), []).extend(r.metrics for r in said.records)
    return scores, ended


def test_killed_process_is_replaced_and_its_cell_is_made_again(bench, pool):
    wanted = bench()
    cells = [wanted.cell(name) for name in ("random", "span_closed_form", "oracle")]
    two = pool()
    first = next(iter(two._processes))
    os.kill(first._process.pid, signal.SIGKILL)
    scores, ended = all_of(two, cells)
    assert set(ended.values()) == {Ended()}
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for cell in cells:
        assert scores[str(cell)] == [r.metrics for r in wanted.run(cell.attack.label)]
    torch.set_num_threads(threads)


def test_cell_whose_process_always_dies_is_given_up_and_the_others_are_made(
    bench, pool, monkeypatch
):
    two, made = pool(), bench()
    give = type(two._processes[0]).give

    def die(process, task):
        if task.cell.attack.label == "oracle":
            process._process.kill()
            process._process.wait()
        give(process, task)

    monkeypatch.setattr(type(two._processes[0]), "give", die)
    scores, ended = all_of(two, [made.cell("random"), made.cell("oracle")])
    (lost,) = [end for end in ended.values() if end.lost]
    assert lost.lost == "its process died, 3 times in a row; it is due still"
    assert len(scores) == 1


def test_cells_that_do_not_fit_the_memory_together_are_made_in_turn(bench, pool):
    made = bench()
    two = pool(memory=3, free=5)
    two.start(made.cell("random"), range(3))
    two.start(made.cell("oracle"), range(3))
    two._give()
    assert [process.task is None for process in two._processes] == [False, True]
    assert {type(two.take()[1]) for _ in range(4)} == {Made, Ended}


def test_process_stays_with_its_round_and_helps_with_anothers_last():
    held, taken = ("tiny", 0, "none"), [("tiny", 1, "none"), ("other", 0, "none")]
    wanted = [
        ("tiny", 0, "none"),
        ("tiny", 0, "withhold_position"),
        ("tiny", 2, "none"),
        ("third", 0, "none"),
        ("tiny", 1, "withhold_position"),
        ("tiny", 1, "none"),
    ]
    assert sorted(reversed(wanted), key=lambda one: _strange(one, held, taken)) == wanted
    both = sorted(wanted, key=lambda one: _strange(one, held, [held, *taken]))
    assert both.index(("tiny", 0, "none")) == 0
    new = ("tiny", 0, "withhold_position")
    assert _strange(new, held, [new]) > _strange(("third", 0, "none"), held, [new])


def test_run_in_processes_never_waits_for_itself(tiny, gradleak, tmp_path):
    words = ["run", tiny(seeds=[0, 1, 2], trials=1), "--attack", "random", "--attack", "oracle"]
    words += ["--defense", "none", "--defense", "withhold_position"]
    ended = gradleak(*words, "--results", tmp_path / "r", "--jobs", 2)
    assert ended.code == 0
    assert "waiting" not in ended.out


def test_memory_is_the_recorded_peak_else_the_budget(bench, tmp_path, provenance, monkeypatch):
    cell = bench().cell("random")
    assert memory_of(cell, tmp_path) == (2048 + 256) * 2**20
    made = cell.record(provenance, trial=0, status="completed", peak_bytes=7)
    append(file_of(tmp_path, "tiny", "random"), [made])
    assert memory_of(cell, tmp_path) == 2 * 2**30 + 7
    monkeypatch.setattr("benchmark.running.needs.free_bytes", lambda: 5 * 2**30)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    assert room([cell], tmp_path, gpus=0, per_gpu=1) == 2
    assert room([cell], tmp_path, gpus=1, per_gpu=1) == 1


def test_gpu_is_shared_by_as_many_as_the_peaks_recorded_on_its_like_let(
    bench, tmp_path, provenance, monkeypatch
):
    monkeypatch.setattr("torch.cuda.get_device_name", lambda device=None: "NVIDIA Made Up")
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device=None: (16 * 2**30, 16 * 2**30))
    device, gpu = torch.device("cuda"), {"hardware": "NVIDIA Made Up"}
    there = provenance.model_copy(update=gpu)
    cells = [bench().cell("random"), bench().cell("oracle")]
    assert sharing(cells[:1], tmp_path, torch.device("cpu")) == 1
    append(
        file_of(tmp_path, "tiny", "random"),
        [
            cells[0].record(there, trial=0, status="completed", peak_bytes=2 * 2**30),
            cells[0].record(provenance, trial=1, status="completed", peak_bytes=9 * 2**30),
        ],
    )
    assert sharing(cells[:1], tmp_path, device) == 4
    assert sharing(cells, tmp_path, device) == 1  # of one of them nothing is known


@pytest.mark.skipif(trouble() is not None, reason="no wall here")
def test_what_is_only_tried_here_has_ended_when_others_make_the_cells(
    tiny, plugin, gradleak, tmp_path, monkeypatch
):
    children, alive = [], []

    class Seen(Child):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            children.append(self)

    def run(runner, groups, until):
        alive.extend(child.alive for child in children)
        return runner.tally

    elsewhere = SimpleNamespace(width=2, ahead=0)
    monkeypatch.setattr("benchmark.running.sandbox.Child", Seen)
    monkeypatch.setattr("benchmark.running.start.engine_of", lambda *_: elsewhere)
    monkeypatch.setattr("benchmark.running.start.Runner.run", run)
    folder, results = plugin("mine", "return grey(seen)"), tmp_path / "r"
    words = ("--attack", "mine", "--defense", "none", "--plugins", folder, "--results", results)
    assert gradleak("run", tiny(), *words, "--jobs", 2).code == 0
    assert alive == [False]


@pytest.mark.slow
@pytest.mark.skipif(trouble() is not None, reason="no wall here")
def test_other_peoples_code_stays_behind_the_wall(tiny, plugin, gradleak, tmp_path):
    folder = plugin("mine", "return grey(seen)")
    words = ["run", tiny(), "--attack", "mine", "--attack", "random", "--defense", "none"]
    ended = gradleak(*words, "--plugins", folder, "--results", tmp_path / "r", "--jobs", 2)
    assert ended.code == 0
    walls = {(r.attack, r.status, r.provenance.wall) for r in read_folder(tmp_path / "r").records}
    assert walls == {("mine", "completed", "bubblewrap"), ("random", "completed", None)}


def test_updates_may_take_two_thirds_of_what_processes_leave_free(monkeypatch, bench, tmp_path):
    cells = [bench().cell("random")]
    most = memory_of(cells[0], tmp_path)
    monkeypatch.setattr("benchmark.running.needs.free_bytes", lambda: 24 * 2**30)
    cpu = torch.device("cpu")
    assert kept_bytes(cells, tmp_path, cpu, 1) == (24 * 2**30 - most) // 4
    assert kept_bytes(cells, tmp_path, cpu, 2) == (12 * 2**30 - most) // 4
    assert kept_bytes(cells, tmp_path, cpu, 9) == KEPT_BYTES
    assert kept_bytes(cells, tmp_path, torch.device("cuda"), 1) == KEPT_BYTES
