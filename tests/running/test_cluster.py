import importlib.util
import os
import signal
import subprocess
import sys
import time

import pytest

from benchmark.running.cluster import _stacks
from benchmark.running.engine import Ended, Task
from benchmark.running.making import Broken, Made, Terms
from benchmark.seeds import PUBLIC

WITHOUT = importlib.util.find_spec("ray") is None

DRIVER = """
import os, signal, sys, threading, time
from pathlib import Path
import ray
from ray.cluster_utils import Cluster
from benchmark.cli import main

kill, results, *words = sys.argv[1:]
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
other = cluster.add_node(num_cpus=1)

def lines():
    return sum(path.read_text().count("\\n") for path in Path(results).glob("*/*.jsonl"))

def end_a_node():
    cluster.remove_node(other, allow_graceful=False)
    print("a node is gone", flush=True)

def end_a_worker():
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        if place.read_bytes().startswith(b"ray::_stacks"):
            os.kill(int(place.parent.name), signal.SIGKILL)
            print("a worker is gone", flush=True)
            return
    os._exit(3)

def once(end):
    while lines() < 10:
        time.sleep(0.02)
    end()

if kill != "none":
    end = {"node": end_a_node, "worker": end_a_worker}[kill]
    threading.Thread(target=once, args=[end], daemon=True).start()
print("up", flush=True)
sys.argv = ["gradleak", *words, "--results", results, "--engine", "ray"]
sys.argv += ["--address", cluster.address]
try:
    main()
finally:
    cluster.shutdown()
"""


def test_death_gives_what_is_left_again_and_three_in_a_row_give_a_cell_up(bench, provenance):
    cell = bench().cell("random")
    task = Task(cell, [0, 1, 2])
    record = cell.record(provenance, trial=0, status="completed")
    assert [task.died("gone"), task.died("gone")] == [None, None]
    task.came(Made([record]))
    assert task.left == [1, 2]
    assert [task.died("gone"), task.died("gone")] == [None, None]
    assert task.died("gone") == Ended("gone, 3 times in a row; it is due still")


def test_death_after_the_last_stack_or_the_verdict_leaves_nothing_to_do(bench, provenance):
    cell = bench().cell("random")
    for last in (
        [cell.record(provenance, trial=trial, status="completed") for trial in (0, 1)],
        [cell.record(provenance, status="not_applicable", reason="why")],
    ):
        task = Task(cell, [0, 1])
        task.came(Made(last))
        assert task.died("gone") == Ended()


def test_bad_input_met_elsewhere_is_bad_input_here(bench):
    task = Task(bench().cell("random"), [0])
    with pytest.raises(Exception, match="too few images"):
        task.came(Broken("too few images", bad_input=True))


def test_node_with_another_source_than_the_drivers_is_refused_in_one_line(bench):
    cell = bench().cell("random")
    theirs = cell.identity.model_copy(update={"attack_fingerprint": "of another source"})
    terms = Terms("cpu", None, PUBLIC, isolate=False, trust=False)
    (said,) = _stacks(terms, cell, theirs, [0])
    assert isinstance(said, Broken)
    assert said.bad_input
    assert said.said.endswith("another source than the driver's; wanted one checkout")


@pytest.mark.skipif(not WITHOUT, reason="the extra ray is installed")
def test_without_ray_one_line_names_the_extra(tiny, gradleak, tmp_path):
    words = ["run", tiny(), "--attack", "random", "--defense", "none", "--results", tmp_path / "r"]
    ended = gradleak(*words, "--engine", "ray")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "pip install 'gradleak[ray]'" in ended.err
    assert not (tmp_path / "r").exists()


def test_engine_that_there_is_not_and_address_of_none_end_in_one_line(tiny, gradleak):
    assert "wanted local or ray" in gradleak("run", tiny(), "--engine", "dask").err
    assert "wanted --engine ray" in gradleak("run", tiny(), "--address", "auto").err


@pytest.fixture
def words(tiny):
    """A run of some seconds on one thread: 4 attacks, 3 defenses, 2 seeds."""
    said = ["run", str(tiny(seeds=[0, 1], trials=8))]
    for attack in ("random", "span_closed_form", "april_closed_form", "oracle"):
        said += ["--attack", attack]
    for defense in ("none", "gaussian_noise,scale=0.01", "withhold_position"):
        said += ["--defense", defense]
    return said


@pytest.mark.slow
@pytest.mark.skipif(WITHOUT, reason="wants the extra ray")
def test_two_nodes_one_killed_a_worker_killed_and_a_driver_killed_make_the_records_of_one_process(
    words, numbers, tmp_path
):
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment = os.environ | alone | {"RAY_worker_niceness": "0"}  # else they starve

    def start(kill, name):
        driver = [sys.executable, "-c", DRIVER, kill, str(tmp_path / name), *words]
        return subprocess.Popen(driver, stdout=subprocess.PIPE, text=True, env=environment)

    local = [sys.executable, "-m", "benchmark.cli", *words, "--results", str(tmp_path / "local")]
    subprocess.run(local, check=True, env=environment, stdout=subprocess.DEVNULL)
    whole = numbers(tmp_path / "local")

    for killed in ("node", "worker"):
        with start(killed, killed) as driver:
            said = driver.communicate(timeout=500)[0]
        assert driver.returncode == 0, said
        assert f"a {killed} is gone" in said
        assert numbers(tmp_path / killed) == whole

    with start("none", "resumed") as driver:
        while not list((tmp_path / "resumed").glob("*/*.jsonl")):
            time.sleep(0.05)
        driver.send_signal(signal.SIGKILL)
    assert 0 < len(numbers(tmp_path / "resumed")) < len(whole)
    with start("none", "resumed") as driver:
        assert driver.wait(500) == 0
    assert numbers(tmp_path / "resumed") == whole
