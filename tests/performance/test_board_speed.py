"""What writing the board costs, by the number of records.

Cells have fifty trials and seven metrics each; a hundred thousand records are ten protocols of ten
defenses and twenty attacks. Seconds are those of reading the files and writing all the pages; the
peak is of the whole process, torch included.
"""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

METRICS = ("psnr", "ssim", "mse", "normalised_mse", "fft2d", "lpips", "label_accuracy")
TRIALS, DEFENSES, ATTACKS = 50, 10, 20
SECONDS, MEBIBYTES = 15, 2048


@pytest.mark.benchmark(group="board")
@pytest.mark.parametrize(
    "records", [1_000, 10_000, 100_000, pytest.param(1_000_000, marks=pytest.mark.slow)]
)
def test_board_of_so_many_records(benchmark, records):
    command = [sys.executable, __file__, str(records)]

    def write():
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(done.stdout)

    cost = benchmark.pedantic(write, rounds=1)
    benchmark.extra_info |= cost
    assert cost["seconds"] < SECONDS
    assert cost["peak_MiB"] < MEBIBYTES


def write_records(records, results):
    """Write a results folder of so many records, in files as a run writes them."""
    import numpy as np

    from benchmark.records import Identity, Provenance, Record, file_of, replace
    from benchmark.records.lines import encode

    cell = min(TRIALS * ATTACKS, records)
    defenses = min(DEFENSES, records // cell)
    parts = Identity.model_fields
    made = {
        "identity": Identity(**{part: "d" if part == "protocol_digest" else "1" for part in parts}),
        "provenance": Provenance(commit="c", dirty=False, versions={"a": "1"}, hardware="h"),
        "threat": "open server",
        "seed": 0,
        "status": "completed",
        "seconds": 1.0,
        "gradient_evaluations": 100,
    }
    draws = np.random.default_rng(0)
    for i in range(records // (cell * defenses)):
        name = f"protocol_{i:03}"
        fields = {"name": name, "digest": "d", "metrics": METRICS, "primary": "psnr"}
        told = {"track": "vision", "data": {"name": "digits"}, "trials": TRIALS, "seeds": [0]}
        replace(results / name / "protocol.json", json.dumps(fields | told))
        for j in range(ATTACKS):
            attack = f"attack_{j:02}" if j else "prior_only"
            lines = [
                Record.model_construct(
                    protocol=name,
                    defense=f"noise_{k}" if k else "none",
                    attack=attack,
                    control=not j,
                    trial=trial,
                    metrics=dict(zip(METRICS, (j + draws.normal(20, 3, 7)).tolist(), strict=True)),
                    **made,
                )
                for k in range(defenses)
                for trial in range(min(TRIALS, records // ATTACKS))
            ]
            replace(file_of(results, name, attack), encode(lines))


def measure(records):
    """Print the seconds and the peak of a board, reading its files too."""
    from benchmark.leaderboard import write_board

    with TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        command = [sys.executable, __file__, str(records), str(results)]
        subprocess.run(command, check=True)  # whose memory is not the board's
        start = time.perf_counter()
        write_board(results, Path(folder) / "leaderboard.md")
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": round(seconds, 2), "peak_MiB": round(peak)}))


if __name__ == "__main__":
    if len(sys.argv) > 2:
        write_records(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        measure(int(sys.argv[1]))
