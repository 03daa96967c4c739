"""What writing the board costs, by the number of records.

Cells have fifty trials and seven metrics each; a hundred thousand records are ten protocols of ten
defenses and twenty attacks. Seconds are those of all the pages, from a table in memory; the peak is
of the whole process, torch included.
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


def table(records, results):
    """Return a table of so many records, and make the files that it names."""
    import numpy as np
    import pandas as pd

    cell = min(TRIALS * ATTACKS, records)
    defenses = min(DEFENSES, records // cell)
    protocols = records // (cell * defenses)
    names = [f"protocol_{i:03}" for i in range(protocols)]
    attacks = ["prior_only", *(f"attack_{i:02}" for i in range(1, ATTACKS))]
    for name in names:
        (results / name).mkdir(parents=True)
        fields = {"name": name, "digest": "d", "metrics": METRICS, "primary": "psnr"}
        told = {"track": "vision", "data": {"name": "digits"}, "trials": TRIALS, "seeds": [0]}
        (results / name / "protocol.json").write_text(json.dumps(fields | told))
        for attack in attacks:
            (results / name / f"{attack}.jsonl").touch()
    draws, n = np.random.default_rng(0), records

    def chosen(words, each):
        codes = np.arange(n) // each % len(words)
        return pd.Categorical.from_codes(codes, categories=words)

    attack = chosen(attacks, TRIALS)
    frame = pd.DataFrame(
        {
            "protocol": chosen(names, TRIALS * ATTACKS * defenses),
            "defense": chosen(["none", *(f"noise_{i}" for i in range(1, DEFENSES))], cell),
            "attack": attack,
            "control": attack == "prior_only",
            "trial": np.arange(n) % TRIALS,
            "seconds": 1.0,
            "gradient_evaluations": 100.0,
            **{name: draws.normal(20, 3, n) + attack.codes for name in METRICS},
        }
    )
    same = {"protocol_digest": "d", "attack_version": 1, "defense_version": 1, "seed": 0}
    same |= {"threat": "open server", "status": "completed", "kind": None, "reason": None}
    same |= {"commit": "c", "dirty": False, "hardware": "h", "threads": 1, "versions": "v"}
    return frame.assign(**same, has_excerpt=False)


def measure(records):
    """Print the seconds and the peak of a board."""
    from benchmark.leaderboard import board
    from benchmark.records import Table

    with TemporaryDirectory() as folder:
        results = Path(folder) / "results"
        frame = table(records, results)
        board.read_table = lambda _: Table(frame, [])
        start = time.perf_counter()
        board.write_board(results, Path(folder) / "leaderboard.md")
        seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": round(seconds, 2), "peak_MiB": round(peak)}))


if __name__ == "__main__":
    measure(int(sys.argv[1]))
