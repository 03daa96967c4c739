"""What a second process is worth: `quick` from nothing, by one process and by two.

Each run is the command line's, in a folder of its own, and makes the same records. One process is
timed twice: with one thread, as each of two has, whose records are the same bit for bit, and with
two, as it has by itself. Wanted: two processes 1.6 times as quick as one of one thread.
"""

import os
import subprocess
import sys
import time

import pytest

WANTED = 1.6


@pytest.mark.benchmark(group="quick from nothing")
def test_two_processes_finish_quick_sooner_than_one(benchmark, numbers, tmp_path):
    def seconds(results, jobs, threads):
        words = [sys.executable, "-m", "benchmark.cli", "run", "quick", "--jobs", str(jobs)]
        began = time.perf_counter()
        subprocess.run(
            [*words, "--results", str(results)],
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            check=True,
            capture_output=True,
        )
        return time.perf_counter() - began

    def measure():
        one = seconds(tmp_path / "one", 1, 1)
        two = seconds(tmp_path / "two", 2, 2)
        both = seconds(tmp_path / "both", 1, 2)
        return {
            "seconds_one_process_of_one_thread": one,
            "seconds_one_process_of_two_threads": both,
            "seconds_two_processes": two,
            "ratio_to_one_thread": one / two,
            "ratio_to_two_threads": both / two,
        }

    benchmark.extra_info |= benchmark.pedantic(measure, rounds=1)
    assert numbers(tmp_path / "one") == numbers(tmp_path / "two")
    assert benchmark.extra_info["ratio_to_one_thread"] > WANTED
